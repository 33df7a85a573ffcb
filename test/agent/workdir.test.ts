import { createHash, randomBytes } from "node:crypto"
import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import type { RequestHandler } from "express"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { GatewayClient } from "../../src/agent/gateway-client.ts"
import { RefusedError } from "../../src/agent/gateway-connection.ts"
import { type AgentOptions, runAgent } from "../../src/agent/main.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { Run } from "../../src/core/apis/job.ts"
import {
  bootstrapToken,
  generateAgentKeys,
  parseUserData,
  publicKey,
  signMessage,
} from "../../src/core/protocol/messages.ts"
import { BOOTSTRAP_KEY, startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { newDisk } from "./suite.ts"
import { archiveOf, fetches, store } from "./workdirs.ts"

/** Working directories: the gateway sends a Launch that of its own job, and the process runtime unpacks it. */
const fixture = launchFixture("workdir")
let gateway: TestGateway
/** Middleware before the gateway, for tests that set it. */
let intercept: RequestHandler | undefined

beforeAll(async () => {
  gateway = await startGateway(fixture, {
    before: (req, res, next) => (intercept === undefined ? next() : intercept(req, res, next)),
    parts: { workdirMibPerMinute: 100 },
  })
})
afterAll(() => gateway.close())

const uploaded = (archive: Buffer) => store(gateway, fixture.namespace, archive)

async function run(script: string, more: Partial<Run>, options: Partial<AgentOptions> = {}) {
  const launch = await fixture.launch({ image: "none", command: ["sh", "-c", script], ...more })
  const dataDir = await newDisk()
  const userData = gateway.userData(launch)
  const exit = await runAgent({ userData, dataDir, runtime: "process", logger: silentLogger, ...options })
  const log = (await gateway.logOf(launch)).toString()
  return { launch, dataDir, exit, log, finish: (await fixture.agentOf(launch))?.finish }
}

describe("a process with a workdir", () => {
  it("starts in it, and has its files, links and permissions", async () => {
    const sha256 = await uploaded(
      await archiveOf(
        [{ name: "run.sh", mode: 0o755 }, '#!/bin/sh\ncat "data/a b.txt" link hard\n'],
        [{ name: "data/a b.txt" }, "one\n"],
        [{ name: "link", type: "symlink", linkname: "data/a b.txt" }],
        [{ name: "hard", type: "link", linkname: "data/a b.txt" }],
        [{ name: "empty/", type: "directory" }],
      ),
    )
    const { log, finish } = await run("./run.sh; ls empty", { workdir: { sha256 } })
    expect(finish?.reason).toBe("Succeeded")
    expect(log).toBe("one\none\none\n")
  })

  it("gets the files again for each attempt, and fetches them once", async () => {
    const sha256 = await uploaded(await archiveOf([{ name: "state" }, "fresh\n"]))
    const before = fetches(gateway)
    const { log, finish } = await run("cat state; echo used > state; exit 1", { workdir: { sha256 }, maxRetries: 1 })
    expect(finish?.reason).toBe("ContainerFailed")
    expect(log).toBe("fresh\n--- attempt 2 ---\nfresh\n")
    expect(fetches(gateway) - before).toBe(1)
  })

  it("continues an archive that broke off, and gets the same bytes", async () => {
    const content = randomBytes(3_000_000)
    const sha256 = await uploaded(await archiveOf([{ name: "data" }, content]))
    const starts: number[] = []
    intercept = (req, res, next) => {
      if (!req.path.endsWith("/workdir")) return next()
      let sent = 0
      const write = res.write.bind(res) as (chunk: Buffer, ...rest: unknown[]) => boolean
      res.write = (chunk: Buffer, ...rest: unknown[]) => {
        sent += chunk.byteLength
        // The connection breaks after the first bytes of the first two answers.
        if (starts.length <= 2 && sent > 1_000_000) res.destroy()
        return write(chunk, ...rest)
      }
      res.once("close", () => starts.push(Number(res.getHeader("Content-Length"))))
      if (starts.length === 0) starts.push(0)
      next()
    }
    try {
      const { log, finish } = await run("sha256sum < data", { workdir: { sha256 } })
      expect(finish?.reason).toBe("Succeeded")
      expect(log).toContain(createHash("sha256").update(content).digest("hex"))
    } finally {
      intercept = undefined
    }
    const sizes = starts.slice(1)
    expect(sizes.length).toBeGreaterThanOrEqual(2)
    expect(sizes.every((size, index) => index === 0 || size < (sizes[index - 1] ?? 0))).toBe(true)
  })

  it.each<[string, Parameters<typeof archiveOf>, string]>([
    ["a name that leads out", [[{ name: "../../escaped" }, "x"]], "leads out of the working directory"],
    ["a link that leads out", [[{ name: "l", type: "symlink", linkname: "/etc" }]], "leads out"],
    ["a file through a link", [[{ name: "l", type: "symlink", linkname: "." }], [{ name: "l/x" }, "x"]], "link too"],
    ["a hard link to a file of the host", [[{ name: "l", type: "link", linkname: "/etc/passwd" }]], "absolute"],
    ["a device", [[{ name: "d", type: "character-device", devmajor: 1, devminor: 5 }]], "character-device"],
  ])("is rejected with %s, and nothing of it is created", async (_what, entries, why) => {
    const sha256 = await uploaded(await archiveOf([{ name: "first" }, "x"], ...entries))
    const { finish, log, dataDir } = await run("echo ran", { workdir: { sha256 } })
    expect(finish).toMatchObject({ reason: "WorkdirFailed", message: expect.stringContaining(why) })
    expect(log).toBe("")
    const names = await readdir(dataDir, { recursive: true })
    expect(names.filter((name) => /escaped|x$|\/d$/.test(name))).toEqual([])
    expect(await readdir(join(dataDir, "..")).then((all) => all.includes("escaped"))).toBe(false)
  })

  it("is rejected when it is no archive", async () => {
    const sha256 = await uploaded(Buffer.from("hello"))
    const { finish } = await run("echo ran", { workdir: { sha256 } })
    expect(finish).toMatchObject({ reason: "WorkdirFailed", message: expect.stringContaining("it is not a tar.gz") })
  })

  it("is not in the agent's log or its state", async () => {
    const secret = `token-${randomBytes(8).toString("hex")}`
    const sha256 = await uploaded(await archiveOf([{ name: ".env" }, secret]))
    const lines: string[] = []
    const logger = { ...silentLogger, info: (...all: unknown[]) => lines.push(JSON.stringify(all)) }
    const { dataDir, exit, finish } = await run("true", { workdir: { sha256 } }, { logger: logger as never })
    expect(finish?.reason).toBe("Succeeded")
    expect(lines.join()).not.toContain(secret)
    expect(await readFile(join(dataDir, "state.json"), "utf8")).not.toContain(secret)
    expect(exit.cause).toBe("finished")
  })
})

describe("a workdir that the project lacks", () => {
  it("ends the Launch before anything runs, and names the field", async () => {
    const archive = await archiveOf([{ name: "a" }, randomBytes(8)])
    const sha256 = await store(gateway, "another-project", archive)
    const { finish, log, exit } = await run("echo ran", { workdir: { sha256 } })
    const message = `workdir.sha256: the project has no upload ${sha256}; upload it, and create the job again`
    expect(finish).toMatchObject({ reason: "WorkdirMissing", message })
    expect([log, exit.cause]).toEqual(["", "refused"])
  })
})

describe("an agent without the ability", () => {
  it("gets no order with a workdir, because it would run the job without it", async () => {
    const sha256 = await uploaded(await archiveOf([{ name: "a" }, "x"]))
    const launch = await fixture.launch({ workdir: { sha256 } })
    const { name } = launch.metadata
    const keys = await generateAgentKeys()
    const registration = {
      launch: name,
      protocol: 1,
      version: "0.1.0",
      runtime: "docker",
      signingKey: publicKey(keys.signing, "Ed25519"),
      encryptionKey: publicKey(keys.encryption, "X25519"),
      abilities: [],
    }
    const response = await fetch(`${gateway.url}/agent/v1/launches/${name}/register`, {
      method: "POST",
      headers: {
        "Content-Type": "application/jose",
        Authorization: `Bearer ${bootstrapToken(BOOTSTRAP_KEY, name)}`,
      },
      body: await signMessage("register", registration, keys.signing),
    })
    expect(response.status).toBe(422)
    const why = "is older than the gateway, and has no support for workdir"
    expect((await fixture.agentOf(launch))?.finish).toMatchObject({
      reason: "WorkdirFailed",
      message: expect.stringContaining(why),
    })
  })
})

describe("the gateway's answer to workdir", () => {
  /** Returns a registered agent's client. */
  async function clientOf(more: Partial<Run>, namespace = fixture.namespace): Promise<GatewayClient> {
    const launch = await fixture.launch(more, { job: { namespace, name: "job", uid: randomBytes(8).toString("hex") } })
    const client = new GatewayClient(parseUserData(gateway.userData(launch)), await generateAgentKeys(), systemClock)
    await client.register({ version: "test", runtime: "docker" })
    return client
  }

  it("is the upload of the Launch's own job, whatever else its agent asks for", async () => {
    const sha256 = await uploaded(await archiveOf([{ name: "a" }, randomBytes(8)]))
    const without = await clientOf({})
    await expect(without.workdir(0)).rejects.toThrow("400")
    await without.close()
    await expect(clientOf({ workdir: { sha256 } }, "another-project")).rejects.toThrow(RefusedError)
  })

  it("is limited for each project, and a replica, in a minute", async () => {
    const archive = await archiveOf([{ name: "a" }, randomBytes(27_000_000)])
    const [sha256 = ""] = await Promise.all(["busy-project", "idle-project"].map((one) => store(gateway, one, archive)))
    const fetchAll = async (client: GatewayClient): Promise<number> => {
      let bytes = 0
      for await (const piece of await client.workdir(0)) bytes += (piece as Buffer).byteLength
      return bytes
    }
    const clients = await Promise.all([1, 2].map(() => clientOf({ workdir: { sha256 } }, "busy-project")))
    const [first, second] = clients as [GatewayClient, GatewayClient]
    const third = await clientOf({ workdir: { sha256 } }, "idle-project")
    // 100 MiB in a minute, of which one project may use 50.
    expect(await fetchAll(first)).toBeGreaterThan(27_000_000)
    await expect(fetchAll(second)).rejects.toMatchObject({ status: 429, retryAfterSeconds: expect.any(Number) })
    expect(await fetchAll(third)).toBeGreaterThan(27_000_000)
    await Promise.all([...clients, third].map((client) => client.close()))
  })
})
