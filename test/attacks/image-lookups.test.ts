import { describe, expect, it } from "vitest"
import { ImageFinder } from "../../src/accounts/images.ts"
import type { ImageFacts } from "../../src/core/apis/image.ts"
import { eventually } from "../harness/eventually.ts"
import { ManualClock } from "../harness/manual-clock.ts"
import { silentLogger } from "../harness/silent-logger.ts"

/** Returns a finder of public images, and the reads that it began. A read ends when the test calls `end`. */
function harness(atOnce: number) {
  const reads: { repository: string; end: () => void }[] = []
  const finder = new ImageFinder({
    connections: () => [],
    registriesOf: () => undefined,
    credentialsOf: () => Promise.reject(new Error("there are no connections")),
    readImage: ({ repository }) => {
      const { promise, resolve } = Promise.withResolvers<ImageFacts>()
      reads.push({ repository, end: () => resolve({ architectures: ["amd64"] }) })
      return promise
    },
    clock: new ManualClock(),
    logger: silentLogger,
    settings: { atOnce },
  })
  const begun = (prefix = ""): number => reads.filter(({ repository }) => repository.startsWith(prefix)).length
  return { finder, reads, begun }
}

describe("image lookups of several projects", () => {
  it("take turns between projects, however many images one has", async () => {
    const { finder, reads, begun } = harness(1)
    for (let n = 0; n < 100; n++) finder.find("greedy", `greedy/${n}`)
    for (const n of [1, 2]) for (const name of ["calm", "other"]) finder.find(name, `${name}/${n}`)
    for (let n = 0; n < 6; n++) {
      await eventually(() => expect(begun()).toBe(n + 1))
      reads[n]?.end()
    }
    const first = reads.slice(0, 6).map(({ repository }) => repository)
    expect(first).toEqual(["greedy/0", "greedy/1", "calm/1", "other/1", "greedy/2", "calm/2"])
  })

  it("have room for others while all registries of one project are silent", async () => {
    const { finder, begun } = harness(16)
    for (let n = 0; n < 100; n++) finder.find("greedy", `greedy/${n}`)
    finder.find("calm", "calm/1")
    await eventually(() => expect(begun("calm")).toBe(1))
    expect(begun("greedy")).toBe(4)
  })
})
