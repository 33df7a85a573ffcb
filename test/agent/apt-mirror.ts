import { execFile } from "node:child_process"
import { once } from "node:events"
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"

/** Host of Azure's own mirror, and Ubuntu's. */
const AZURE_MIRROR = "azure.archive.ubuntu.com"
const UBUNTU_MIRROR = "archive.ubuntu.com"

/**
 * Both mirrors of an Ubuntu VM on Azure, as a server for a real apt. Azure's accepts connections and never answers. Ubuntu's
 * has packages without files, whose installation runs a script.
 */
export class AptMirrors {
  readonly #server: Server
  readonly #folder: string
  readonly #address: string
  /** True if Ubuntu's mirror does not answer either. */
  stalled = false

  private constructor(folder: string, address: string) {
    this.#folder = folder
    this.#address = address
    this.#server = createServer(async (request, response) => {
      if (this.stalled || request.headers.host?.startsWith(AZURE_MIRROR)) return
      const name = (request.url ?? "").split("/").at(-1) ?? ""
      const content = await readFile(join(folder, decodeURIComponent(name))).catch(() => undefined)
      response.writeHead(content === undefined ? 404 : 200).end(content)
    })
  }

  /** Starts with these packages: names and the scripts that their installations run. */
  static async start(address: string, packages: Record<string, string>): Promise<AptMirrors> {
    const folder = await mkdtemp(join(tmpdir(), "berth-apt-"))
    for (const [name, script] of Object.entries(packages)) await buildPackage(folder, name, script)
    const debs = (await readdir(folder)).filter((file) => file.endsWith(".deb"))
    const entries = debs.map(async (deb) => {
      const { stdout } = await promisify(execFile)("dpkg-deb", ["--field", join(folder, deb)])
      const bytes = await readFile(join(folder, deb))
      const digest = Buffer.from(await crypto.subtle.digest("SHA-256", bytes)).toString("hex")
      return `${stdout.trim()}\nFilename: ./${deb}\nSize: ${bytes.byteLength}\nSHA256: ${digest}\n`
    })
    await writeFile(join(folder, "Packages"), (await Promise.all(entries)).join("\n"))
    const mirrors = new AptMirrors(folder, address)
    mirrors.#server.listen(0, address)
    await once(mirrors.#server, "listening")
    return mirrors
  }

  /** Files and names of a VM that uses these mirrors. */
  get vm(): { files: Record<string, string>; hosts: string[] } {
    const { port } = this.#server.address() as AddressInfo
    return {
      files: {
        "etc/apt/sources.list": `deb [trusted=yes] http://${AZURE_MIRROR}:${port}/ubuntu ./\n`,
        "var/lib/dpkg/status": "",
      },
      hosts: [AZURE_MIRROR, UBUNTU_MIRROR].map((name) => `${name}:${this.#address}`),
    }
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
    await rm(this.#folder, { recursive: true, force: true })
  }
}

async function buildPackage(folder: string, name: string, script: string): Promise<void> {
  const root = join(folder, name)
  await mkdir(join(root, "DEBIAN"), { recursive: true })
  const control = { Package: name, Version: "1.0", Architecture: "all", Maintainer: "Berth <test@berth.dev>" }
  const lines = Object.entries({ ...control, Description: "package of a test" }).map((pair) => pair.join(": "))
  await writeFile(join(root, "DEBIAN", "control"), `${lines.join("\n")}\n`)
  await writeFile(join(root, "DEBIAN", "postinst"), `#!/bin/sh\n${script}\n`, { mode: 0o755 })
  await promisify(execFile)("dpkg-deb", ["--root-owner-group", "--build", root, join(folder, `${name}.deb`)])
}
