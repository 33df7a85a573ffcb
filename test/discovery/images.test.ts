import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { ImageFinder, type ImageFinderOptions } from "../../src/accounts/images.ts"
import { dockerHubRegistry } from "../../src/clouds/dockerhub/account.ts"
import { imageReader } from "../../src/clouds/registries/manifests.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { TransientError } from "../../src/core/outbound/errors.ts"
import { publicFetch } from "../../src/core/outbound/public-fetch.ts"
import { eventually } from "../harness/eventually.ts"
import { ManualClock } from "../harness/manual-clock.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { needing } from "../needing.ts"
import { missingForRegistry, putImage, startTokenRegistry, type TestRegistry } from "../registry.ts"
import { connection, never } from "./accounts.ts"

const registry = needing(missingForRegistry())

const PUSHER = { username: "pusher", password: "of-a-test" }
const SECRET = "dckr_pat_of-the-team"

/** A finder over connections with these names, the oldest first. Each signs in with its name and a password. */
function harness(names: readonly string[], options: Partial<ImageFinderOptions>, password = SECRET) {
  const clock = new ManualClock()
  const made = names.map((name, index) =>
    connection(name, { type: "dockerhub", created: `2026-01-0${index + 1}T00:00:00Z` }),
  )
  const finder = new ImageFinder({
    connections: (namespace) => (namespace === "yard" ? made.toReversed() : []),
    registriesOf: (type) => (type === "dockerhub" ? { ...dockerHubRegistry, serves: () => true } : undefined),
    credentialsOf: async ({ metadata }) => ({ username: metadata.name, token: password }),
    readImage: async () => undefined,
    clock,
    logger: silentLogger,
    ...options,
  })
  return { clock, finder, found: (image: string) => finder.whenFound("yard", image) }
}

registry.describe("the reader of an image's architectures", () => {
  let registry: TestRegistry
  const options = () => ({ readImage: imageReader({ clock: systemClock, send: registry.send }) })

  beforeAll(async () => {
    registry = await startTokenRegistry({
      pusher: { password: PUSHER.password, pushes: true },
      team: { password: SECRET, pulls: ["team/"] },
    })
    const images: [string, string[]][] = [
      ["public/both", ["linux/amd64", "linux/arm64", "unknown/unknown", "windows/amd64"]],
      ["public/arm", ["linux/arm64"]],
      ["public/mainframe", ["linux/s390x"]],
      ["team/app", ["linux/amd64"]],
    ]
    for (const [repository, platforms] of images)
      await putImage(registry, { repository, tag: "1", platforms, user: PUSHER })
    for (const platforms of [["linux/amd64"], ["linux/amd64", "linux/arm64"]]) {
      const repository = `public/sized-${platforms.length}`
      await putImage(registry, { repository, tag: "1", platforms, user: PUSHER, layerBytes: 3 * 2 ** 20 })
    }
  })
  afterAll(() => registry.stop())

  it("reads an image's architectures from its list of manifests, or from the configuration of its only manifest", async () => {
    const { found } = harness([], options())
    expect(await found(`${registry.host}/public/both:1`)).toEqual({ state: "known", architectures: ["amd64", "arm64"] })
    expect(await found(`${registry.host}/public/arm:1`)).toEqual({ state: "known", architectures: ["arm64"] })
  })

  it.each([
    ["its only manifest", 1, []],
    ["one manifest of its list", 2, ["arm64"]],
  ])("reads an image's compressed size from %s", async (_, platforms, others) => {
    const { found } = harness([], options())
    registry.requests.length = 0
    expect(await found(`${registry.host}/public/sized-${platforms}:1`)).toEqual({
      state: "known",
      architectures: ["amd64", ...others],
      sizeGib: 3 / 1024,
    })
    expect(registry.requests.filter((line) => /^GET .*manifests/.test(line))).toHaveLength(platforms)
  })

  it("reads an image with a connection of the project that has access, and hides the image from other projects", async () => {
    const image = `${registry.host}/team/app:1`
    const known = { state: "known", architectures: ["amd64"] }
    expect(await harness(["others", "team"], options()).found(image)).toEqual(known)
    const { found, finder } = harness(["team"], options(), "dckr_pat_revoked-since")
    const unknown = await found(image)
    expect(unknown).toMatchObject({
      state: "unknown",
      why: expect.stringMatching(/connection team: .*401.*no access to it/),
    })
    expect(JSON.stringify(unknown)).not.toContain("revoked-since")
    expect(await finder.whenFound("another-project", image)).toMatchObject({ state: "unknown" })
  })

  it("knows that an image is missing by the registry's own words, and only while they are new", async () => {
    const { clock, finder, found } = harness([], options())
    const image = `${registry.host}/public/late:1`
    expect(await found(image)).toEqual({
      state: "missing",
      why: `registry ${registry.host}: HTTP 404: manifest unknown`,
    })
    expect(finder.find("yard", image)).toMatchObject({ state: "missing" })
    clock.advance(6)
    // A job would fail by an old answer, although its image was pushed meanwhile.
    expect(finder.find("yard", image)).toEqual({ state: "looking" })
    expect(await found(image)).toMatchObject({ state: "missing" })
    await putImage(registry, { repository: "public/late", tag: "1", platforms: ["linux/arm64"], user: PUSHER })
    clock.advance(6)
    expect(await found(image)).toEqual({ state: "known", architectures: ["arm64"] })
  })

  it("knows an image that is pushed between two requests of its lookup", async () => {
    const repository = "public/just-now"
    const send: typeof registry.send = async (input, init) => {
      const response = await registry.send(input, init)
      const isMissed = init?.method === "HEAD" && response.status === 404
      if (isMissed) await putImage(registry, { repository, tag: "1", platforms: ["linux/arm64"], user: PUSHER })
      return response
    }
    const { found } = harness([], { readImage: imageReader({ clock: systemClock, send }) })
    const known = { state: "known", architectures: ["arm64"] }
    expect(await found(`${registry.host}/${repository}:1`)).toEqual(known)
  })

  it("does not call an image missing if a connection could not ask", async () => {
    const image = `${registry.host}/public/nothing:1`
    expect(await harness(["team"], options(), "dckr_pat_wrong").found(image)).toMatchObject({ state: "unknown" })
    expect(await harness(["team"], options()).found(image)).toMatchObject({ state: "missing" })
  })

  it("reports unknown architectures, with a reason, without access and for an image of other machines", async () => {
    const { found } = harness([], options())
    expect(await found(`${registry.host}/team/app:1`)).toEqual({
      state: "unknown",
      why: `registry ${registry.host}: no such image, or no access to it`,
    })
    expect(await found(`${registry.host}/public/mainframe:1`)).toMatchObject({
      why: expect.stringContaining("linux/s390x"),
    })
  })

  it("reads an image once for each digest, and checks again when a tag may have moved", async () => {
    const { clock, finder, found } = harness([], options())
    const image = `${registry.host}/public/moving:1`
    const push = (platforms: string[]) =>
      putImage(registry, { repository: "public/moving", tag: "1", platforms, user: PUSHER })
    await push(["linux/amd64"])
    await found(image)
    registry.requests.length = 0
    clock.advance(301)
    // A caller that can't wait gets the old answer once more.
    expect(finder.find("yard", image)).toEqual({ state: "known", architectures: ["amd64"] })
    expect(await found(image)).toEqual({ state: "known", architectures: ["amd64"] })
    expect(registry.requests).toContainEqual(expect.stringMatching(/^HEAD .*public[/]moving[/]manifests[/]1/))
    expect(registry.requests.filter((line) => /^GET .*(manifests|blobs)/.test(line))).toEqual([])
    await push(["linux/arm64"])
    clock.advance(301)
    expect(await found(image)).toEqual({ state: "known", architectures: ["arm64"] })
    clock.advance(901)
    expect(finder.find("yard", image)).toEqual({ state: "looking" })
    await found(image)
  })

  it("reads no image from addresses outside the public internet", async () => {
    const { found } = harness([], { readImage: imageReader({ clock: systemClock, send: publicFetch() }) })
    registry.requests.length = 0
    for (const host of [registry.host, "10.0.0.1", "169.254.169.254", "localhost:5000"])
      expect(await found(`${host}/public/arm:1`)).toMatchObject({ why: expect.stringMatching(/no public address/) })
    expect(registry.requests).toEqual([])
  })
})

describe("a question about an image's architectures", () => {
  it("never blocks for an image; after 10 seconds its architectures are unknown, even if the request still waits", async () => {
    const asked: string[] = []
    const readImage = (image: { repository: string }) => {
      asked.push(image.repository)
      return never()
    }
    const { clock, finder } = harness([], { readImage, settings: { atOnce: 1 } })
    for (const image of ["acme/a", "acme/b"]) expect(finder.find("yard", image)).toEqual({ state: "looking" })
    await eventually(() => expect(asked).toEqual(["acme/a"]))
    clock.advance(10)
    const late = { state: "unknown", why: expect.stringContaining("within 10 seconds") }
    for (const image of ["acme/a", "acme/b"]) expect(finder.find("yard", image)).toMatchObject(late)
  })

  it("reads an image from a registry again after a temporary failure", async () => {
    let isAway = true
    const readImage = async () => {
      if (isAway) throw new TransientError("NoAnswer", "the host could not be reached")
      return { architectures: ["arm64"] as const }
    }
    const { clock, found } = harness([], { readImage })
    expect(await found("acme/a")).toMatchObject({
      state: "unknown",
      why: expect.stringContaining("could not be reached"),
    })
    isAway = false
    clock.advance(61)
    expect(await found("acme/a")).toEqual({ state: "known", architectures: ["arm64"] })
  })
})
