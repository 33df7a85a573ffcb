import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { newCertificateAuthority } from "../dev/controlplane/certificates.ts"
import { startTied } from "./tied-process.ts"

/** In-memory server of Azure Blob Storage (https://github.com/Azure/Azurite) that accepts OAuth tokens. */
export interface Azurite {
  port: number
  /** PEM of the authority that signed its certificate, which is valid for `*.blob.core.windows.net`. */
  ca: string
  stop(): Promise<void>
}

/** @param accounts names of its storage accounts */
export async function startAzurite(accounts: readonly string[]): Promise<Azurite> {
  const folder = await mkdtemp(join(tmpdir(), "berth-azurite-"))
  const authority = newCertificateAuthority("azurite")
  const { certificate, key } = authority.issue({ commonName: "azurite", hosts: ["*.blob.core.windows.net"] })
  await writeFile(join(folder, "cert.pem"), certificate)
  await writeFile(join(folder, "key.pem"), key)
  const program = join(dirname(createRequire(import.meta.url).resolve("azurite/package.json")), "dist/src/blob/main.js")
  const args = [program, "--blobHost", "127.0.0.1", "--blobPort", "0", "--oauth", "basic", "--inMemoryPersistence"]
  const files = ["--cert", join(folder, "cert.pem"), "--key", join(folder, "key.pem")]
  // Without the last option but one it would send telemetry to its maker.
  const server = await startTied(process.execPath, [...args, ...files, "--disableTelemetry", "--skipApiVersionCheck"], {
    ready: /successfully listen(?:s|ing) (?:on|at) https:[/][/]127\.0\.0\.1:([0-9]+)/,
    env: { AZURITE_ACCOUNTS: accounts.map((name) => `${name}:${Buffer.from(name).toString("base64")}`).join(";") },
  })
  return {
    port: Number(server.address),
    ca: authority.certificate,
    stop: async () => {
      await server.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}
