import { randomBytes } from "node:crypto"
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { afterAll, beforeAll, expect, it } from "vitest"
import { connectedBuckets } from "../../src/api/gateway/buckets.ts"
import type { StoredConnection } from "../../src/core/apis/connection.ts"
import type { Run } from "../../src/core/apis/job.ts"
import type { Finish, Launch } from "../../src/core/apis/launch.ts"
import { startGateway, type TestGateway } from "../harness/gateway.ts"
import { needing } from "../needing.ts"
import { missingForRegistry, type OpenRegistry, startOpenRegistry } from "../registry.ts"
import { smallDisk } from "../small-disk.ts"
import { engineOfSize } from "./engines.ts"
import { wordsFor } from "./failures.ts"
import { buildImage, docker, loadImage } from "./images.ts"
import { VOLUMES_WAIT_MS } from "./mounts.ts"
import { fixture, images, logShows, pass, prepareAgents, runVm, shell, start, WAIT } from "./suite.ts"
import { missingForVolumes, type VolumeVms, volumeVms } from "./volume-vms.ts"

prepareAgents()

const possible = needing((await missingForVolumes()) ?? missingForRegistry())

/**
 * First bytes of a file for 64-bit Arm (man 5 elf), or for x86-64. It is an object file: a machine that emulates other
 * architectures would run a program.
 */
const elf = (machine: number): Buffer => {
  const header = Buffer.alloc(64)
  header.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1])
  header.writeUInt16LE(1, 16)
  header.writeUInt16LE(machine, 18)
  return header
}
const FOREIGN =
  process.arch === "arm64" ? { machine: 62, architecture: "amd64" } : { machine: 183, architecture: "arm64" }

/** One failure. `helps`: what its user can do, if the message can't know it. */
interface Failure {
  what: string
  helps?: string
  run: () => Promise<Finish | undefined>
}

const FILL = "/bin/busybox dd if=/dev/zero of=/dev/shm/x bs=1M count=64"
const WORKER = "/bin/busybox dd if=/dev/zero of=/dev/null bs=200M count=1"
const OWN = "Correct the program or its image; `berth logs JOB` has the rest."

possible.describe("19 ordinary failures", () => {
  let registry: OpenRegistry
  let status = 404
  let buckets: TestGateway
  let vms: VolumeVms
  let s3: Server
  const built: string[] = []

  beforeAll(async () => {
    registry = await startOpenRegistry((_req, res) => {
      res.writeHead(status, { "content-type": "application/json" })
      const error =
        status === 401
          ? { code: "UNAUTHORIZED", message: "authentication required" }
          : { code: "MANIFEST_UNKNOWN", message: "manifest unknown" }
      res.end(JSON.stringify({ errors: [error] }))
      return true
    })
    s3 = createServer((_req, res) => {
      res.writeHead(403, { "content-type": "application/xml" })
      res.end("<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")
    }).listen(0)
    vms = await volumeVms(fixture)
    buckets = await startGateway(fixture, {
      parts: {
        registries: async () => ({
          registry: registry.host,
          why: `registry ${registry.host}: no connection of the project is for it`,
        }),
        buckets: bucketsOf(),
      },
    })
  }, VOLUMES_WAIT_MS)
  afterAll(async () => {
    await vms.remove()
    for (const name of built) await docker.getImage(name).remove({ force: true, noprune: true })
    await buckets.close()
    s3.close()
    await registry.stop()
  })

  /** Buckets of one connection: `denied` is found, and its content can't be read. */
  function bucketsOf() {
    const connection = { metadata: { name: "aws-prod", uid: "c", creationTimestamp: "2026-01-01T00:00:00Z" } }
    const one = { ...connection, spec: { type: "aws" } } as StoredConnection
    return connectedBuckets({
      connections: { cached: () => undefined, live: async () => [one] },
      credentials: async () => ({ access_key_id: "key", secret_access_key: "secret" }),
      providers: {
        aws: {
          find: async (_, bucket) => (bucket === "denied" ? {} : undefined),
          access: async () => ({
            path: "denied",
            remote: {
              ...{ type: "s3", provider: "Other", region: "us-east-1", force_path_style: "true" },
              endpoint: `http://127.0.0.1:${(s3.address() as AddressInfo).port}`,
            },
            keys: { accessKeyId: "key", secretAccessKey: "secret" },
          }),
        },
      },
    })
  }

  async function image(lines: string[], files: Record<string, string>): Promise<string> {
    const name = `berth-test/failures:${randomBytes(4).toString("hex")}`
    await buildImage(name, { ...files, Dockerfile: `${lines.join("\n")}\n` })
    built.push(name)
    return name
  }

  const ran = async (script: string, more?: Partial<Run>) => (await runVm("docker", shell(script, more))).finish

  /** Runs a script on a VM of its own with 64 MiB. */
  async function onSmallVm(script: string) {
    const engine = await engineOfSize(64)
    const offer: Launch["spec"]["offer"] = { ...(await fixture.launch({})).spec.offer, cloud: "aws" }
    try {
      return (await runVm("docker", shell(script), { spec: { offer }, dockerSocket: engine.socket })).finish
    } finally {
      await engine.close()
    }
  }

  /** Pulls an image of a registry that answers with this status. */
  async function pulled(answer: number) {
    status = answer
    const launch = await fixture.launch({ image: `${registry.host}/team/app:1` })
    const userData = buckets.userData(launch)
    return (await (await start(launch, { runtime: "docker", userData, pullPatienceSeconds: 2 })).exit).finish
  }

  async function mounted(bucket: string) {
    const { launch, exit } = await vms.start(buckets, "true", { data: { bucket, mountPath: "/data" } })
    await exit
    return (await fixture.agentOf(launch))?.finish
  }

  async function onFullDisk() {
    const disk = await smallDisk(16)
    try {
      const script = `echo began; ${WAIT}; echo 'write /tmp/x: No space left on device' >&2; exit 1`
      const launch = await fixture.launch(shell(script))
      const { exit } = await start(launch, { runtime: "docker", dataDir: disk.path })
      await logShows(launch, "began")
      await disk.fill()
      await pass(launch, "docker", disk.path)
      return (await exit).finish
    } finally {
      await disk.remove()
    }
  }

  const TRACEBACK = `echo 'Traceback (most recent call last):'; echo "ModuleNotFoundError: No module named 'torch'"`
  const FAILURES: Failure[] = [
    { what: "a module is not installed", helps: OWN, run: () => ran(`(${TRACEBACK}) >&2; exit 1`) },
    { what: "a file is missing", helps: OWN, run: () => ran("cat /data/train.csv") },
    { what: "the command is not in the image", run: () => ran("", { command: ["/no/such/program"] }) },
    {
      what: "the command is not executable",
      run: async () => {
        const files = { "etc/train.sh": "echo never" }
        return await ran("", {
          image: await image([`FROM ${images?.tools}`, "COPY etc /etc"], files),
          command: ["/etc/train.sh"],
        })
      },
    },
    { what: "the program needs more memory than it has", run: () => onSmallVm(`exec ${FILL}`) },
    {
      what: "a worker process was killed for memory",
      run: () => onSmallVm(`${WORKER} 2> /dev/null || { echo worker died; exit 1; }`),
    },
    { what: "the program used memory wrongly", run: () => ran("kill -SEGV $$") },
    { what: "shared memory is full", run: () => ran("kill -BUS $$") },
    {
      what: "the image is for another architecture",
      run: async () => {
        const name = `berth-test/foreign:${randomBytes(4).toString("hex")}`
        await loadImage(name, { architecture: FOREIGN.architecture, program: elf(FOREIGN.machine) })
        built.push(name)
        return (await runVm("docker", { image: name })).finish
      },
    },
    { what: "there is no such image", run: () => pulled(404) },
    { what: "the image is private", run: () => pulled(401) },
    {
      what: "the registry is down",
      helps: "Berth tries other VMs. Wait until the registry is up, or use a copy of the image.",
      run: () => pulled(503),
    },
    { what: "there is no such bucket", run: () => mounted("nowhere") },
    { what: "a bucket can't be read", run: () => mounted("denied") },
    { what: "the disk is full", run: onFullDisk },
    { what: "the job took too long", run: () => ran("sleep 60", { timeoutSeconds: 3 }) },
    {
      what: "the job took too long, and ignored SIGTERM",
      run: async () => {
        const run = shell("trap '' TERM; while :; do sleep 1; done", { timeoutSeconds: 3 })
        return (await runVm("docker", run, { stopGraceSeconds: 1 })).finish
      },
    },
    {
      what: "the working directory was not uploaded",
      run: () => ran("true", { workdir: { sha256: "0".repeat(64) } }),
    },
    { what: "a secret is missing", run: () => ran("true", { secretEnv: { TOKEN: { secret: "db", key: "token" } } }) },
  ]

  it("name cause and remedy, in the same words everywhere", { timeout: 600_000 }, async () => {
    const rows: string[] = []
    for (const { what, helps, run } of FAILURES) {
      const finish = await run()
      if (finish === undefined) throw new Error(`no finish: ${what}`)
      const words = wordsFor(finish)
      expect.soft(words.cli).toContain(words.rest)
      expect.soft(words.rest.startsWith(words.kubectl) || words.rest.includes(words.kubectl), what).toBe(true)
      if (helps === undefined) expect.soft(words.rest, what).toMatch(/; |, /)
      rows.push(`| ${what} | \`${words.reason}\` | ${shown(words.rest)} | ${helps ?? ""} |`)
    }
    expect(FAILURES).toHaveLength(19)
    const head = ["| what happened | reason | what Berth says | what you can do |", "|---|---|---|---|"]
    await expect(`${[...head, ...rows].join("\n")}\n`).toMatchFileSnapshot("golden/failures.md")
  })

  /** Returns a message without what differs in each run. */
  function shown(message: string): string {
    return message
      .replaceAll(registry.host, "ghcr.io")
      .replaceAll(/127\.0\.0\.1:\d+/g, "storage.example")
      .replaceAll(/tini \(\d+\)/g, "tini (7)")
      .replaceAll(/0{64}/g, "9f86d081…")
      .replaceAll(/ in \d+ tries/g, " in 2 tries")
      .replaceAll(/RequestID: \S+, HostID: \S*,?/gi, "…")
      .replaceAll("|", "\\|")
  }
})
