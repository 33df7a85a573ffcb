import { createPrivateKey, X509Certificate } from "node:crypto"
import { once } from "node:events"
import { mkdtemp, readFile, rm, stat } from "node:fs/promises"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { connect, createServer, type TLSSocket } from "node:tls"
import { expect, it, onTestFinished, vi } from "vitest"
import { CERTIFICATE_DAYS, newCertificateAuthority } from "./certificates.ts"
import { loadPki } from "./pki.ts"

it("a certificate names its holder, its hosts and its signer", () => {
  const authority = newCertificateAuthority("ours")
  const { certificate, key } = authority.issue({ commonName: "ann", organization: "crew", hosts: ["a.b", "10.0.0.1"] })
  const parsed = new X509Certificate(certificate)
  const signer = new X509Certificate(authority.certificate)
  expect(parsed.subject).toBe("O=crew\nCN=ann")
  expect(parsed.subjectAltName).toBe("DNS:a.b, IP Address:10.0.0.1")
  expect(parsed.checkPrivateKey(createPrivateKey(key))).toBe(true)
  expect(parsed.checkIssued(signer) && parsed.verify(signer.publicKey)).toBe(true)
  expect([signer.ca, parsed.ca]).toEqual([true, false])
  expect(parsed.verify(new X509Certificate(newCertificateAuthority("ours").certificate).publicKey)).toBe(false)
})

it("a server opens a mutual TLS connection, but rejects a client of another authority", async () => {
  const authority = newCertificateAuthority("ours")
  const holder = authority.issue({ commonName: "server", hosts: ["127.0.0.1"] })
  const listener = createServer({
    cert: holder.certificate,
    key: holder.key,
    ca: authority.certificate,
    requestCert: true,
    maxVersion: "TLSv1.2",
  })
  onTestFinished(() => void listener.close())
  listener.on("secureConnection", (socket: TLSSocket) => socket.end(String(socket.getPeerCertificate().subject.CN)))
  listener.listen(0, "127.0.0.1")
  await once(listener, "listening")
  const greet = async (signer: typeof authority) => {
    const { certificate, key } = signer.issue({ commonName: "ann" })
    const { port } = listener.address() as AddressInfo
    const socket = connect({ port, host: "127.0.0.1", ca: authority.certificate, cert: certificate, key })
    onTestFinished(() => void socket.destroy())
    const [greeting] = (await once(socket, "data")) as [Buffer]
    return greeting.toString()
  }
  expect(await greet(authority)).toBe("ann")
  await expect(greet(newCertificateAuthority("ours"))).rejects.toThrow()
})

it("certificates are kept between starts, readable by their owner only", async () => {
  const directory = await mkdtemp(join(tmpdir(), "berth-pki-"))
  onTestFinished(() => rm(directory, { recursive: true }))
  const first = await loadPki(join(directory, "pki"))
  const before = await readFile(first.certificate("admin"), "utf8")
  const account = await readFile(first.serviceAccountKey, "utf8")
  expect((await stat(first.key("admin"))).mode & 0o077).toBe(0)
  const again = await loadPki(join(directory, "pki"))
  expect(await readFile(again.certificate("admin"), "utf8")).toBe(before)

  // 29 days before they expire they are replaced. The key that signs every ServiceAccount token stays.
  vi.setSystemTime(Date.now() + (CERTIFICATE_DAYS - 29) * 24 * 3_600_000)
  onTestFinished(() => void vi.useRealTimers())
  const renewed = await loadPki(join(directory, "pki"))
  expect(await readFile(renewed.certificate("admin"), "utf8")).not.toBe(before)
  expect(await readFile(renewed.serviceAccountKey, "utf8")).toBe(account)
})
