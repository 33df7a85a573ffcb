import { randomBytes } from "node:crypto"
import { readFile } from "node:fs/promises"
import type { IncomingMessage, ServerResponse } from "node:http"
import { buffer } from "node:stream/consumers"
import { setTimeout as sleep } from "node:timers/promises"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { DEFAULT_DOCKER_SOCKET, DockerRuntime } from "../../src/agent/runtimes/docker.ts"
import { errorMessage } from "../../src/agent/runtimes/engine.ts"
import { pullImage } from "../../src/agent/runtimes/pull.ts"
import type { RunError } from "../../src/agent/runtimes/runtime.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { RunOrder } from "../../src/core/protocol/protocol.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { needing } from "../needing.ts"
import { missingForRegistry, type OpenRegistry, startOpenRegistry } from "../registry.ts"
import { BUSYBOX, buildImage, docker, followProgress, missingForContainers } from "./images.ts"
import { prepareAgents, runVm } from "./suite.ts"

prepareAgents()

const containers = needing((await missingForContainers()) ?? missingForRegistry())

/** Pace of a slow registry. */
const PIECE_BYTES = 40_000
const PIECE_SECONDS = 0.1

/** Returns true for the engine, and false for the agent. */
function isEngine(req: IncomingMessage): boolean {
  return req.headers["user-agent"]?.startsWith("docker/") === true
}

containers.describe("a pull", () => {
  let registry: OpenRegistry
  let image = ""
  /** Answers a request before the registry does; returns false for those for the registry. */
  let gate: (req: IncomingMessage, res: ServerResponse) => boolean | Promise<boolean> = () => false

  beforeAll(async () => {
    registry = await startOpenRegistry((req, res) => gate(req, res))
  })
  afterAll(async () => {
    await forget()
    await registry.stop()
  })
  // Each test has an image of its own, none of whose layers the engine has.
  beforeEach(async () => {
    gate = () => false
    const tag = randomBytes(4).toString("hex")
    image = `${registry.host}/team/app:${tag}`
    const lines = ["FROM scratch", `LABEL of=${tag}`, "COPY echo large /", 'ENTRYPOINT ["/echo", "pulled"]']
    await buildImage(image, {
      Dockerfile: `${lines.join("\n")}\n`,
      echo: await readFile(BUSYBOX),
      large: randomBytes(2_000_000),
    })
    await followProgress(await docker.getImage(image).push({ authconfig: {} }))
    await forget()
  })

  async function forget(): Promise<void> {
    for (const { RepoTags } of await docker.listImages({ filters: { reference: [`${registry.host}/*/*`] } })) {
      for (const name of RepoTags ?? []) await docker.getImage(name).remove({ force: true })
    }
  }

  it("outlasts a registry that is down, then busy, and asks again when that registry wants it", async () => {
    let refused = 0
    let early = 0
    let probes = 0
    let isOpen = false
    gate = (req, res) => {
      if (isOpen) return false
      if (refused < 3) {
        refused++
        return answer(res, 503)
      }
      if (probes > 0) early++
      if (!isEngine(req)) {
        expect(req.headers.authorization).toBeUndefined()
        probes++
        setTimeout(() => {
          isOpen = true
        }, 3000)
      }
      return answer(res, 429, { "retry-after": "3" })
    }
    const { finish, log } = await runVm("docker", { image })
    expect(finish).toMatchObject({ reason: "Succeeded" })
    expect(log).toBe("pulled\n")
    expect({ refused, probes, early }).toEqual({ refused: 3, probes: 1, early: 0 })
  })

  it("gives up a registry without progress, as the VM's failure, and doesn't wait longer than it would", async () => {
    gate = (_req, res) => answer(res, 503)
    const down = await runVm("docker", { image }, { pullPatienceSeconds: 2 })
    expect(down.finish).toMatchObject({ reason: "RegistryUnavailable", transient: true })
    expect(down.finish?.message).toMatch(/team\/app:\w+ can't be pulled: .*503.*; no progress for \d s in [2-9] tries$/)
    gate = (_req, res) => answer(res, 429, { "retry-after": "3600" })
    const busy = await runVm("docker", { image })
    expect(busy.finish).toMatchObject({ reason: "RegistryUnavailable", transient: true })
    expect(busy.finish?.message).toMatch(/; no progress for 0 s in 1 tries; the registry asks to wait 3600 s$/)
  })

  it.each([
    [503, "RegistryUnavailable", false],
    [429, "RegistryUnavailable", true],
    [404, "ImagePullFailed", true],
    [403, "ImagePullFailed", true],
    [401, "ImagePullFailed", true],
  ])(
    "fails after HTTP %i as %s, and says why there are no credentials if these could help: %j",
    async (status, reason, says) => {
      gate = (_req, res) => answer(res, status)
      const why = "no connection of the project is for it"
      const pulled = pullImage(
        image,
        { registry: registry.host, why },
        {
          ...{ docker, clock: systemClock, logger: silentLogger, patienceSeconds: 3 },
          explain: (error) => Promise.resolve(errorMessage(error)),
          signal: new AbortController().signal,
          reorder: () => Promise.reject(new Error("unexpected")),
        },
      )
      const error = await pulled.then(
        () => undefined,
        (failure: unknown) => failure as RunError,
      )
      expect(error).toMatchObject({ reason })
      expect(error?.message.includes(`(${why})`)).toBe(says)
    },
  )

  it.each([
    [
      404,
      "VolumeMountFailed",
      /^the image for volumes can't be pulled: .*team\/app.*; correct the operator's --volumes-image$/,
    ],
    [503, "RegistryUnavailable", /team\/app:\w+ can't be pulled: .*503/],
  ])("fails after HTTP %i for the image of volumes as %s", async (status, reason, message) => {
    gate = (_req, res) => answer(res, status)
    const runtime = new DockerRuntime({
      ...{
        launch: "l",
        isTakeover: false,
        agent: "a",
        socketPath: DEFAULT_DOCKER_SOCKET,
        dataDir: "/nonexistent",
        volumesImage: image,
      },
      ...{ clock: systemClock, logger: silentLogger, pullPatienceSeconds: 3 },
    })
    const options = { signal: new AbortController().signal, reorder: () => Promise.reject(new Error("unexpected")) }
    const run = { image, volumes: { out: { bucket: "b", mountPath: "/out" } } }
    const buckets = { out: { remote: { type: "memory" }, path: "b" } }
    await expect(runtime.mount({ run, buckets } as unknown as RunOrder, options)).rejects.toMatchObject({
      ...{ name: "RunError", reason },
      message: expect.stringMatching(message),
    })
  })

  it("replaces a connection that hangs, before and within its answer", async () => {
    let asked = 0
    let hanging = 0
    gate = async (req, res) => {
      if (req.url?.includes("/manifests/") === true) return asked++ === 0
      const blob = await layer(req)
      if (blob === undefined || hanging++ > 0) return false
      res.writeHead(200, { "content-length": blob.length }).write(blob.subarray(0, blob.length / 2))
      return true
    }
    const { finish } = await runVm("docker", { image }, { pullPatienceSeconds: 6 })
    expect(finish).toMatchObject({ reason: "Succeeded" })
    expect(hanging).toBe(2)
  })

  it("takes longer than the patience while it makes progress", async () => {
    let downloads = 0
    let seconds = 0
    gate = async (req, res) => {
      const blob = await layer(req)
      if (blob === undefined) return false
      downloads++
      res.writeHead(200, { "content-length": blob.length })
      for (let sent = 0; sent < blob.length; sent += PIECE_BYTES, seconds += PIECE_SECONDS) {
        res.write(blob.subarray(sent, sent + PIECE_BYTES))
        await sleep(PIECE_SECONDS * 1000)
      }
      res.end()
      return true
    }
    const patience = 5
    const { finish } = await runVm("docker", { image }, { pullPatienceSeconds: patience })
    expect(finish).toMatchObject({ reason: "Succeeded" })
    expect(downloads).toBe(1)
    expect(seconds).toBeGreaterThan(patience)
  })

  /** Returns the image's layer if the request is for it. */
  async function layer(req: IncomingMessage): Promise<Buffer | undefined> {
    if (req.method !== "GET" || req.url?.includes("/blobs/") !== true) return undefined
    const blob = await buffer(await registry.fetch(req))
    return blob.length > 1_000_000 ? blob : undefined
  }
})

function answer(res: ServerResponse, status: number, headers: Record<string, string> = {}): true {
  res.writeHead(status, headers).end()
  return true
}
