import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { KubeConfig } from "@kubernetes/client-node"
import { afterAll, beforeAll, expect, inject, it, onTestFinished } from "vitest"
import { type CertificateAuthority, newCertificateAuthority } from "../../dev/controlplane/certificates.ts"
import { type ControlPlane, startControlPlane } from "../../dev/controlplane/control-plane.ts"
import { loadPki } from "../../dev/controlplane/pki.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { NAMESPACES } from "../../src/core/kube/core.ts"
import { KubeError } from "../../src/core/kube/errors.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { until } from "../harness/eventually.ts"
import { silentLogger } from "../harness/silent-logger.ts"

// A real API server, whose clients have certificates of an authority of this test.

let folder: string
let authority: CertificateAuthority
let controlPlane: ControlPlane

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-certificates-"))
  authority = newCertificateAuthority("short-lived")
  const { clusterAuthority } = await loadPki(join(folder, "pki"))
  await writeFile(clusterAuthority, `${await readFile(clusterAuthority, "utf8")}${authority.certificate}`)
  controlPlane = await startControlPlane({ binaries: inject("controlPlaneBinaries"), dataDir: folder, durable: false })
}, 120_000)

afterAll(async () => {
  await controlPlane?.stop()
  await rm(folder, { recursive: true, force: true, maxRetries: 3 })
})

const file = (name: string) => join(folder, name)

/** Writes a certificate of an administrator into the files that the kubeconfig names. */
async function issue(seconds: number): Promise<void> {
  const { certificate, key } = authority.issue({ commonName: "ann", organization: "system:masters", seconds })
  await writeFile(file("client.crt"), certificate)
  await writeFile(file("client.key"), key)
}

/** Returns a client whose kubeconfig names files, like those that a kubelet or cert-manager renews. */
function connected(): KubeClient {
  const config = new KubeConfig()
  config.loadFromOptions({
    clusters: [{ name: "it", server: controlPlane.url, caFile: join(folder, "pki", "certificates", "cluster-ca.crt") }],
    users: [{ name: "ann", certFile: file("client.crt"), keyFile: file("client.key") }],
    contexts: [{ name: "it", cluster: "it", user: "ann" }],
    currentContext: "it",
  })
  const client = new KubeClient(config)
  onTestFinished(() => client.close())
  return client
}

it("a client of the API server is rejected by name when its certificate expires, and continues with the renewed one without a restart", async () => {
  await issue(4)
  const client = connected()
  const stop = new AbortController()
  onTestFinished(() => stop.abort())
  const namespaces = new Reflector({ client, resource: NAMESPACES, logger: silentLogger })
  const running = namespaces.run(stop.signal)
  await namespaces.whenSynced(AbortSignal.timeout(30_000))

  const errors: unknown[] = []
  await until("the certificate has expired", async () => {
    await client.get(NAMESPACES, { name: "default" }).catch((error: unknown) => errors.push(error))
    return errors.length > 0
  })
  expect(errors[0]).toBeInstanceOf(KubeError)
  expect(errors[0]).toMatchObject({ code: 401, reason: "Unauthorized" })

  await issue(600)
  // The first rejection has dropped the certificate that was read before.
  expect((await client.get(NAMESPACES, { name: "default" })).metadata.name).toBe("default")
  await client.create(NAMESPACES, { metadata: { name: "renewed" } })
  await namespaces.store.waitUntil(
    () => namespaces.store.get({ name: "renewed" }) !== undefined,
    AbortSignal.timeout(60_000),
  )
  stop.abort()
  await running
}, 120_000)
