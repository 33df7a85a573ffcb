import { describe, expect, it, vi } from "vitest"
import { Discoverer, type DiscovererOptions } from "../../src/accounts/discoverer.ts"
import type { ExternalAccount } from "../../src/clouds/account.ts"
import type { CredentialFields } from "../../src/core/apis/credentials.ts"
import { CredentialsError, TransientError } from "../../src/core/outbound/errors.ts"
import { createLogger } from "../../src/core/telemetry/logger.ts"
import { eventually } from "../harness/eventually.ts"
import { ManualClock } from "../harness/manual-clock.ts"
import { accountWith, connection, never } from "./accounts.ts"

const SECRET = "a-secret-that-nobody-may-see"

function harness(accounts: Record<string, ExternalAccount>, changes: Partial<DiscovererOptions> = {}) {
  const clock = new ManualClock()
  const lines: string[] = []
  const asked: string[] = []
  const logger = createLogger({ level: "trace", name: "test", destination: { write: (line) => void lines.push(line) } })
  const discoverer = new Discoverer({
    openAccount: (_, credentials) => {
      asked.push(String(credentials["name"]))
      return accounts[String(credentials["name"])]
    },
    credentialsOf: async ({ metadata }) => ({ name: metadata.name, secret_access_key: SECRET }) as CredentialFields,
    clock,
    logger,
    ...changes,
  })
  return { discoverer, clock, asked, logged: () => lines.join("") }
}

const namesIn = ({ found }: Awaited<ReturnType<Discoverer["discover"]>>) =>
  found.map(({ connection: by, resource }) => `${by.metadata.name}/${resource.name}`)

describe("a discovery", () => {
  it("returns the healthy part of a discovery when one connection fails and one hangs", async () => {
    const broken = accountWith(["kept"], new CredentialsError("AccessDenied", `no: ${SECRET}`), ["unseen"])
    const { discoverer, clock } = harness({
      broken,
      slow: accountWith(["first"], never()),
      healthy: accountWith(["a"]),
    })
    const ended = vi.fn()
    const answer = discoverer.discover("storages", [connection("broken"), connection("slow"), connection("healthy")])
    void answer.then(ended)
    await eventually(() => expect(clock.timers).toBe(1))
    clock.advance(14.9)
    await new Promise(setImmediate)
    expect(ended).not.toHaveBeenCalled()
    clock.advance(0.2)
    const discovered = await answer
    expect(namesIn(discovered)).toEqual(["broken/kept", "healthy/a", "slow/first"])
    expect(
      discovered.failures.map(({ connection: by, reason, message }) => [by.metadata.name, reason, message]),
    ).toEqual([
      ["broken", "AccessDenied", "no: [redacted]"],
      ["slow", "TimedOut", "it gave no complete answer within 15 seconds"],
    ])
    expect(clock.timers).toBe(0)
  })

  it("aborts a discovery's pending requests at the time limit, credentials included", async () => {
    const signals: AbortSignal[] = []
    const slow: ExternalAccount = {
      verify: async () => ({ account: "1" }),
      // biome-ignore lint/correctness/useYield: hangs before its first page
      async *storages(signal) {
        signals.push(signal)
        await never()
      },
    }
    const { discoverer, clock } = harness({ slow }, {})
    const answer = discoverer.discover("storages", [connection("slow")])
    await eventually(() => expect(signals).toHaveLength(1))
    expect(signals[0]?.aborted).toBe(false)
    clock.advance(15)
    expect((await answer).failures).toMatchObject([{ reason: "TimedOut" }])
    expect(signals[0]?.aborted).toBe(true)

    const locked = harness({}, { credentialsOf: never })
    const second = locked.discoverer.discover("storages", [connection("slow")])
    await eventually(() => expect(locked.clock.timers).toBe(1))
    locked.clock.advance(15)
    expect((await second).failures).toMatchObject([{ reason: "TimedOut" }])
  })

  it("returns resources in a stable order: connections by creation time, resources by name", async () => {
    const { discoverer } = harness({
      old: accountWith(["z"], ["b", "a"]),
      twin: accountWith(["c"]),
      young: accountWith(["d"]),
    })
    const made = [
      connection("young", { created: "2026-03-01T00:00:00Z" }),
      connection("twin", { created: "2026-02-01T00:00:00Z" }),
      connection("old", { created: "2026-02-01T00:00:00Z" }),
    ]
    const expected = ["old/a", "old/b", "old/z", "twin/c", "young/d"]
    expect(namesIn(await discoverer.discover("storages", made))).toEqual(expected)
    expect(namesIn(await discoverer.discover("storages", made.toReversed()))).toEqual(expected)
  })

  it("caches a complete discovery for a while, and only for the same version of the connection", async () => {
    const { discoverer, clock, asked } = harness({ mine: accountWith(["a"]) })
    const twice = await Promise.all([1, 2].map(() => discoverer.discover("storages", [connection("mine")])))
    expect(twice.map(namesIn)).toEqual([["mine/a"], ["mine/a"]])
    expect(asked).toHaveLength(1)
    clock.advance(29)
    await discoverer.discover("storages", [connection("mine")])
    expect(asked).toHaveLength(1)
    await discoverer.discover("storages", [connection("mine", { version: "2" })])
    expect(asked).toHaveLength(2)
    await discoverer.discover("repositories", [connection("mine")])
    expect(asked).toHaveLength(3)
    clock.advance(2)
    await discoverer.discover("storages", [connection("mine")])
    expect(asked).toHaveLength(4)
  })

  it("caches no failed discovery", async () => {
    const { discoverer, asked } = harness({ mine: accountWith(["a"], new TransientError("Busy", "later")) })
    for (const _ of [1, 2])
      expect((await discoverer.discover("storages", [connection("mine")])).failures).toHaveLength(1)
    expect(asked).toHaveLength(2)
  })

  it("skips resources that a provider lacks, and unknown connection types", async () => {
    const { discoverer } = harness({ mine: accountWith(["a"]) })
    expect(await discoverer.discover("repositories", [connection("mine")])).toEqual({ found: [], failures: [] })
    expect(await discoverer.discover("storages", [connection("unknown")])).toEqual({ found: [], failures: [] })
  })

  it("returns a limited number of resources", async () => {
    const many = Array.from({ length: 30 }, (_, index) => [`b${index}-1`, `b${index}-2`])
    const { discoverer } = harness({ mine: accountWith(...many) }, { settings: { mostResources: 5 } })
    const { found, failures } = await discoverer.discover("storages", [connection("mine")])
    expect(found).toHaveLength(5)
    expect(failures).toMatchObject([{ reason: "TooMany", message: "only the first 5 are shown" }])
  })

  it("reports a bug of Berth only in the log, and credentials nowhere", async () => {
    const { discoverer, logged } = harness({ mine: accountWith(new TypeError(`x is no function of ${SECRET}`)) })
    const { failures } = await discoverer.discover("storages", [connection("mine")])
    expect(failures).toMatchObject([{ reason: "InternalError", message: expect.not.stringContaining("function") }])
    expect(logged()).toContain("x is no function of [redacted]")
    expect(logged() + JSON.stringify(failures)).not.toContain(SECRET)
  })
})
