import { once } from "node:events"
import { createServer } from "node:https"
import type { AddressInfo } from "node:net"
import { getCACertificates, setDefaultCACertificates } from "node:tls"
import { expect, it, onTestFinished } from "vitest"
import { newCertificateAuthority } from "../../dev/controlplane/certificates.ts"
import { unreachableText } from "../../src/cli/commands/check.ts"
import { toFailure } from "../../src/cli/exit.ts"
import { readGreeting } from "../../src/cli/installation.ts"

it.each([
  ["an expired certificate", -1, "certificate has expired. The operator of this Berth must renew it."],
  ["an authority that is not trusted", 600, "For a private CA, set NODE_EXTRA_CA_CERTS."],
])("the command line names %s", async (_, seconds, text) => {
  const authority = newCertificateAuthority("ours")
  const { certificate, key } = authority.issue({ commonName: "api", hosts: ["127.0.0.1"], seconds })
  const server = createServer({ cert: certificate, key })
  server.listen(0, "127.0.0.1")
  await once(server, "listening")
  onTestFinished(() => void server.close())
  const before = getCACertificates("default")
  onTestFinished(() => setDefaultCACertificates(before))
  if (seconds < 0) setDefaultCACertificates([...before, authority.certificate])
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
  const error: unknown = await readGreeting(url, AbortSignal.timeout(30_000)).catch((reason: unknown) => reason)
  expect(unreachableText(toFailure(error).message)).toContain(text)
})
