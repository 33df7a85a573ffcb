import { describe, expect, it } from "vitest"
import { BucketFinder, type BucketFinderOptions } from "../../src/accounts/buckets.ts"
import type { ExternalAccount, ReachedBucket } from "../../src/clouds/account.ts"
import { TransientError } from "../../src/core/outbound/errors.ts"
import { eventually } from "../harness/eventually.ts"
import { ManualClock } from "../harness/manual-clock.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { connection, never } from "./accounts.ts"

type Reach = (bucket: string) => Promise<ReachedBucket | undefined>

/** A finder over connections in the order of their creation, with the access of each. */
function harness(reaches: Record<string, Reach>, changes: Partial<BucketFinderOptions> = {}) {
  const clock = new ManualClock()
  const asked: string[] = []
  const made = Object.keys(reaches).map((name, index) =>
    connection(name, { created: `2026-01-0${index + 1}T00:00:00Z` }),
  )
  const finder = new BucketFinder({
    connections: (namespace) => (namespace === "yard" ? made.toReversed() : []),
    openAccount: (_, { name = "" }): ExternalAccount => ({
      verify: async () => ({ account: "1" }),
      bucket: (bucket) => {
        asked.push(`${name}/${bucket}`)
        return reaches[name]?.(bucket) ?? Promise.resolve(undefined)
      },
    }),
    credentialsOf: async ({ metadata }) => ({ name: metadata.name, token: "a-secret-token" }),
    clock,
    logger: silentLogger,
    ...changes,
  })
  const answered = (bucket = "cargo", named?: string) =>
    eventually(() => {
      const found = finder.find("yard", bucket, named)
      expect(found.state).not.toBe("looking")
      return found
    })
  return { finder, clock, asked, answered, made }
}

const yes =
  (region?: string): Reach =>
  async () =>
    region === undefined ? {} : { region }
const no: Reach = async () => undefined

describe("the search for a bucket's connection", () => {
  it('finds a bucket by the oldest connection with access, and returns "looking" until then', async () => {
    const { finder, answered, asked } = harness({ oldest: no, older: yes("eu-west-1"), newer: yes("us-east-1") })
    expect(finder.find("yard", "cargo")).toEqual({ state: "looking" })
    expect(await answered()).toEqual({ state: "reached", connection: "older", type: "aws", region: "eu-west-1" })
    expect(asked).toEqual(["oldest/cargo", "older/cargo", "newer/cargo"])
    expect(finder.find("yard", "cargo")).toMatchObject({ state: "reached" })
    expect(asked).toHaveLength(3)
  })

  it("decides on a bucket's connection only after older connections have answered or timed out", async () => {
    const { finder, clock, answered, asked } = harness({ slow: never, healthy: yes() })
    expect(finder.find("yard", "cargo").state).toBe("looking")
    await eventually(() => expect(asked).toHaveLength(2))
    await new Promise(setImmediate)
    expect(finder.find("yard", "cargo").state).toBe("looking")
    clock.advance(15)
    expect(await answered()).toEqual({ state: "reached", connection: "healthy", type: "aws" })
  })

  it("resolves whenFound after the decision on a bucket's connection", async () => {
    const { finder } = harness({ oldest: no, older: yes("eu-west-1"), slow: never })
    expect(await finder.whenFound("yard", "cargo")).toMatchObject({ state: "reached", connection: "older" })
    const late = harness({ slow: never, healthy: yes() })
    const waiting = late.finder.whenFound("yard", "cargo")
    await eventually(() => expect(late.asked).toHaveLength(2))
    late.clock.advance(15)
    expect(await waiting).toMatchObject({ state: "reached", connection: "healthy" })
  })

  it('resolves whenFound with "looking" while too many requests wait', async () => {
    const { finder, clock, asked } = harness({ mine: never }, { settings: { atOnce: 1 } })
    for (const bucket of ["a", "b"]) finder.find("yard", bucket)
    const waiting = finder.whenFound("yard", "cargo")
    clock.advance(15)
    await eventually(() => expect(asked).toHaveLength(2))
    clock.advance(15)
    expect(await waiting).toEqual({ state: "looking" })
  })

  it("asks only the connection that a volume names, by the object's name or by its name in REST", async () => {
    const { answered, asked } = harness({ first: yes(), second: yes("x") })
    expect(await answered("cargo", "second")).toMatchObject({ connection: "second" })
    expect(asked).toEqual(["second/cargo"])
    expect(await answered("cargo", "third")).toEqual({
      state: "notReached",
      why: "there is no such connection to storage in the project",
    })
  })

  it("finds no connection if all fail, with a reason of each and without credentials", async () => {
    const failing: Reach = () => Promise.reject(new TransientError("Busy", "come back with a-secret-token"))
    const { answered } = harness({ denied: no, failing, faulty: () => Promise.reject(new TypeError("x")) })
    expect(await answered()).toEqual({
      state: "notReached",
      why:
        "denied: no such bucket, or no access to it; failing: come back with [redacted]; " +
        "faulty: internal error in Berth; its log has details",
    })
    expect(harness({}).finder.find("yard", "cargo")).toEqual({
      state: "notReached",
      why: "the project has no connection to storage",
    })
    expect(harness({ mine: yes() }).finder.find("another", "cargo").state).toBe("notReached")
  })

  it("asks for a bucket again after a while, sooner if it was not found, and at once after a change of the connection", async () => {
    const { answered, clock, asked, made } = harness({ mine: async (bucket) => (bucket === "cargo" ? {} : undefined) })
    await answered("cargo")
    await answered("nothing")
    expect(asked).toHaveLength(2)
    clock.advance(61)
    await answered("cargo")
    await answered("nothing")
    expect(asked).toEqual(["mine/cargo", "mine/nothing", "mine/nothing"])
    clock.advance(240)
    await answered("cargo")
    expect(asked).toHaveLength(4)
    const [mine] = made
    if (mine !== undefined) mine.metadata.resourceVersion = "2"
    await answered("cargo")
    expect(asked).toHaveLength(5)
  })

  it("makes a limited number of concurrent requests of a project: a quarter of all", async () => {
    const open: (() => void)[] = []
    const { finder, asked } = harness(
      { mine: () => new Promise((resolve) => open.push(() => resolve({}))) },
      { settings: { atOnce: 8 } },
    )
    for (const bucket of ["a", "b", "c"]) finder.find("yard", bucket)
    await eventually(() => expect(asked).toHaveLength(2))
    open[0]?.()
    await eventually(() => expect(asked).toEqual(["mine/a", "mine/b", "mine/c"]))
  })

  it("asks no registry for a bucket", async () => {
    const { finder } = harness({}, { connections: () => [connection("hub", { type: "dockerhub" })] })
    expect(finder.find("yard", "cargo")).toEqual({
      state: "notReached",
      why: "the project has no connection to storage",
    })
  })
})
