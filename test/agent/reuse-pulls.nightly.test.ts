import { readFile } from "node:fs/promises"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { runAgent } from "../../src/agent/main.ts"
import type { RegistryAccess } from "../../src/core/protocol/protocol.ts"
import { filesWith } from "../attacks/files-with.ts"
import { startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { needing } from "../needing.ts"
import { missingForRegistry, startTokenRegistry, type TestRegistry } from "../registry.ts"
import { type OwnEngine, ownEngine } from "./engines.ts"
import { Handover, reusable } from "./handover.ts"
import { BUSYBOX, buildImage, docker, followProgress, missingForContainers } from "./images.ts"
import { newDisk } from "./suite.ts"

const containers = needing((await missingForContainers()) ?? missingForRegistry())

const PASSWORD = "password-of-the-team-88c1"
const PUSHER = { username: "pusher", password: "of-a-test" }
const users = {
  pusher: { password: PUSHER.password, pushes: true },
  team: { password: PASSWORD, pulls: ["team/"] },
}

containers.describe("an image on a reused VM", () => {
  const fixture = launchFixture("reused-images")
  const handover = new Handover(
    () => fixture,
    (launch) => gateway.userData(launch),
  )
  let registry: TestRegistry
  let gateway: TestGateway
  let engine: OwnEngine
  /** Access to the registry that the next order has. */
  let access: RegistryAccess | undefined

  beforeAll(async () => {
    registry = await startTokenRegistry(users)
    const registries = async () => access ?? { registry: registry.host, why: "no connection is for it" }
    gateway = await startGateway(fixture, { before: handover.handler, parts: { registries } })
    engine = await ownEngine()
  })
  afterAll(async () => {
    for (const { RepoTags } of await docker.listImages({ filters: { reference: [`${registry.host}/*/*`] } })) {
      for (const name of RepoTags ?? []) await docker.getImage(name).remove({ force: true })
    }
    await Promise.all([gateway.close(), registry.stop(), engine.close()])
  })
  beforeEach(() => {
    access = { registry: registry.host, username: "team", password: PASSWORD }
  })

  /** Builds an image that prints a text, and pushes it. Returns its id and its digest. */
  async function push(image: string, says: string): Promise<{ id: string; digest: string }> {
    const lines = ["FROM scratch", "COPY echo /echo", `ENTRYPOINT ["/echo", ${JSON.stringify(says)}]`]
    await buildImage(image, { Dockerfile: `${lines.join("\n")}\n`, echo: await readFile(BUSYBOX) })
    await followProgress(await docker.getImage(image).push({ authconfig: { ...PUSHER, serveraddress: registry.host } }))
    const { Id: id, RepoDigests: digests } = await docker.getImage(image).inspect()
    return { id, digest: digests.find((digest) => digest.startsWith(image.replace(/:\d+$/, "@"))) ?? "" }
  }

  /** Runs a job on a VM. Then runs another one on it, after `between`. Returns the second one's result. */
  async function runTwo(first: string, second: string, between: () => Promise<void> | void) {
    const { offer } = (await fixture.launch({})).spec
    const spec = { offer: { ...offer, cloud: "aws" as const } }
    const launch = await fixture.launch({ image: first, ...reusable() }, spec)
    const dataDir = await newDisk()
    const options = { dockerSocket: engine.socket, runtime: "docker" as const, logger: silentLogger }
    const exit = runAgent({ userData: gateway.userData(launch), dataDir, ...options })
    await Promise.race([handover.idle(launch), exit])
    expect(await filesWith(PASSWORD, dataDir)).toEqual([])
    await between()
    const next = await handover.successor(launch, { image: second })
    const { finish } = await exit
    return { finish, log: (await gateway.logOf(next)).toString() }
  }

  it("is the one that its tag has now, without a download if it has not moved", async () => {
    const image = `${registry.host}/team/app:1`
    const old = await push(image, "old")
    const unmoved = await runTwo(image, image, () => {
      registry.requests.length = 0
    })
    expect(unmoved).toMatchObject({ finish: { reason: "Succeeded" }, log: "old\n" })
    expect(registry.requests.filter((request) => request.includes("/manifests/1"))).not.toEqual([])
    expect(registry.requests.filter((request) => request.includes("/blobs/"))).toEqual([])
    const moved = await runTwo(image, image, async () => {
      await push(image, "new")
      await docker.getImage(old.id).tag({ repo: image.replace(/:1$/, ""), tag: "1" })
    })
    expect(moved).toMatchObject({ finish: { reason: "Succeeded" }, log: "new\n" })
  })

  it.each(["tag", "digest"])("is for a job only if its own credentials can pull it, by %s", async (by) => {
    const image = `${registry.host}/team/private-${by}:1`
    const { digest } = await push(image, "private")
    const name = by === "tag" ? image : digest
    expect(await runTwo(name, name, () => undefined)).toMatchObject({ log: "private\n" })
    const refused = await runTwo(name, name, () => {
      access = undefined
    })
    expect(refused.finish).toMatchObject({ reason: "ImagePullFailed" })
    expect(refused.finish?.message).toMatch(/no connection is for it/)
    expect(refused.log).toBe("")
  })
})
