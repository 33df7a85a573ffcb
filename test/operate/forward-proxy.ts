import { execFileSync, spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync } from "node:fs"
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { createConnection } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { freePort } from "../../dev/controlplane/ports.ts"
import { eventually } from "../harness/eventually.ts"

const SQUID = "/usr/sbin/squid"

/** Returns why no forward proxy can be started here; undefined if one can. */
export function missingForProxy(): string | undefined {
  return existsSync(SQUID) ? undefined : "Debian's package squid is missing"
}

/** A squid. It looks names up in a file of its own, so nothing else knows them. */
export interface ForwardProxy {
  /** Returns the URL of the proxy for a program. The log distinguishes the programs by their ports. */
  urlFor(program: string): string
  /** Returns what a program has requested: `host:port` of tunnels, and URLs of other requests. */
  requestsOf(program: string): Promise<string[]>
  stop(): Promise<void>
}

/** @param hosts addresses by name. @param programs names of the clients. @param address where it listens and is reached */
export async function startForwardProxy(
  hosts: Record<string, string>,
  programs: readonly string[],
  address = "127.0.0.1",
): Promise<ForwardProxy> {
  const folder = await mkdtemp(join(tmpdir(), "berth-squid-"))
  // squid gives up root's rights for its own user.
  await chmod(folder, 0o777)
  const path = (name: string) => join(folder, name)
  const ports = new Map<string, number>()
  for (const program of programs) ports.set(program, await freePort())
  await writeFile(
    path("hosts"),
    Object.entries(hosts)
      .map(([name, at]) => `${at} ${name}\n`)
      .join(""),
  )
  const settings = [
    ...[...ports.values()].map((port) => `http_port ${address}:${port}`),
    `hosts_file ${path("hosts")}`,
    // No other name exists for it.
    "dns_nameservers 127.255.255.254",
    ...["http_access allow all", "cache deny all", "shutdown_lifetime 0 seconds"],
    "logformat own %>lp %ru",
    `access_log stdio:${path("access.log")} logformat=own`,
    ...[`cache_log ${path("cache.log")}`, `pid_filename ${path("pid")}`, `coredump_dir ${folder}`],
  ]
  await writeFile(path("squid.conf"), `${settings.join("\n")}\n`)
  const child = spawn(SQUID, ["-N", "-f", path("squid.conf")], { stdio: "ignore" })
  const ended = once(child, "exit")
  const [first = 0] = ports.values()
  await eventually(async () => {
    if (child.exitCode !== null) throw new Error(await readFile(path("cache.log"), "utf8").catch(() => "no log"))
    const socket = createConnection(first, address)
    await once(socket, "connect").finally(() => socket.destroy())
  })
  return {
    urlFor: (program) => `http://${address}:${ports.get(program)}`,
    requestsOf: async (program) => {
      const log = await readFile(path("access.log"), "utf8").catch(() => "")
      // A connection without a request, such as the one that waited for the start, is an error in the log.
      const lines = log.split("\n").flatMap((line) => (line.includes(" error:") ? [] : [line.split(" ")]))
      return [...new Set(lines.flatMap(([port, target = ""]) => (port === String(ports.get(program)) ? [target] : [])))]
    },
    stop: async () => {
      child.kill("SIGKILL")
      await ended
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** Returns true if this machine itself has an address for the name. */
export function isKnownHere(name: string): boolean {
  try {
    execFileSync("getent", ["hosts", name])
    return true
  } catch {
    return false
  }
}
