import { describe, expect, test } from "vitest"
import { agentOf, at, jobOf, launchOf, time, vmStatus } from "../../../test/harness/builders.ts"
import type { LaunchSpec, LaunchStatus, StoredLaunch } from "../../core/apis/launch.ts"
import type { LaunchAccount } from "../router/cooldown.ts"
import { pausedAccounts, type Tenants } from "./breaker.ts"
import { launchHistory } from "./ledger.ts"
import { JOB_DEFAULTS } from "./settings.ts"

/** A boot that had its 900 s, never registered, and was ended. */
function deadBoot(from: number, spec: Partial<LaunchSpec> = {}): StoredLaunch {
  const vm = { state: "terminated" as const, id: "vm", createTime: time(from), terminationTime: time(from + 910) }
  return launchOf(jobOf(), 1, {
    metadata: { creationTimestamp: time(from) },
    spec: { ended: true, ...spec },
    status: { phase: "terminated", vm },
  })
}

describe("the breaker", () => {
  const pauses = (launches: StoredLaunch[], seconds: number, launchAccounts: LaunchAccount[] = [{ cloud: "sim" }]) =>
    pausedAccounts(launchAccounts, "team", launchHistory(launches), { now: at(seconds), settings: JOB_DEFAULTS }).map(
      ({ cause: _, ...scope }) => scope,
    )
  const paused = (launches: StoredLaunch[], seconds: number) => pauses(launches, seconds)[0]?.until
  const five = [0, 10, 20, 30, 40].map((from) => deadBoot(from))
  const last = 40 + 910

  test("pauses launching after 5 boots in a row that never registered", () => {
    expect(paused(five.slice(1), last)).toBeUndefined()
    expect(paused(five, last)).toEqual(at(last + 600))
  })

  test("pauses nothing for boots that failed in time to come", () => {
    const ahead = five.map((_, index) => deadBoot(1e9 + index))
    expect(paused(ahead, last)).toBeUndefined()
    expect(paused([...ahead, ...five], last)).toEqual(at(last + 600))
  })

  test("counts no row if a VM registered in between", () => {
    const good = launchOf(jobOf(), 1, { status: vmStatus({ agent: agentOf({ registrationTime: time(925) }) }) })
    expect(paused([...five, good], last)).toBeUndefined()
  })

  test("lets one launch through after the pause: while it boots the others wait, its failure pauses again, its success ends it", () => {
    expect(paused(five, last + 600)).toBeUndefined()
    const probe = (status: LaunchStatus) =>
      launchOf(jobOf(), 1, { metadata: { creationTimestamp: time(last + 601) }, status })
    expect(paused([...five, probe({})], last + 610)).toEqual(at(last + 625))
    expect(paused([...five, deadBoot(last + 601)], last + 601 + 910)).toEqual(at(last + 601 + 910 + 600))
    const registered = vmStatus({ agent: agentOf({ registrationTime: time(last + 620) }) })
    expect(paused([...five, probe(registered)], last + 630)).toBeUndefined()
  })

  const broken = { connection: "main", account: "42" }
  const own = [0, 10, 20, 30, 40].map((from) => deadBoot(from, broken))
  const of = (namespace: string) => ({ job: { namespace, name: "train", uid: "u" } })

  test("pauses only the account whose boots they were, in every project", () => {
    const launchAccounts = [
      { cloud: "sim", ...broken, credentials: "v2" },
      { cloud: "sim", connection: "renamed", account: "42" },
      { cloud: "sim", connection: "main", account: "43" },
      { cloud: "sim" },
    ]
    const until = at(last + 600)
    expect(pauses(own, last, launchAccounts)).toEqual([
      { cloud: "sim", ...broken, until },
      { cloud: "sim", connection: "renamed", account: "42", until },
    ])
    // Another account's VM that registered says nothing of this one.
    const good = launchOf(jobOf(), 1, { status: vmStatus({ agent: agentOf({ registrationTime: time(945) }) }) })
    expect(pauses([...own, good], last, launchAccounts)).toHaveLength(2)
    const others = [0, 10, 20, 30, 40].map((from) => deadBoot(from, of("other")))
    expect(pauses(others, last)).toEqual([])
  })

  const ORGANIZATIONS: Record<string, string> = { team: "acme", sister: "acme", other: "rival", front: "acme-too" }
  const PERSONS: Record<string, string> = { team: "ada", sister: "ada", other: "eve", front: "ada" }
  const tenantsOf = (persons: number): Tenants => ({
    organizationOf: (name) => ORGANIZATIONS[name],
    personOf: (name) => PERSONS[name],
    persons: () => persons,
  })
  const all = (launches: StoredLaunch[], seconds: number, count: number) => {
    const terms = { now: at(seconds), settings: JOB_DEFAULTS, tenants: tenantsOf(count) }
    return pausedAccounts([{ cloud: "sim" }], "team", launchHistory(launches), terms).map(
      ({ cause: _, ...scope }) => scope,
    )
  }
  const four = own.slice(0, 4)
  const rivals = deadBoot(40, { account: "43", ...of("other") })
  const sisters = deadBoot(40, { account: "43", ...of("sister") })
  const fronts = deadBoot(40, { account: "43", ...of("front") })

  test("pauses all accounts when the dead boots are of two people's organizations and of two accounts", () => {
    expect(all([...four, rivals], last, 2)).toEqual([{ cloud: "sim", until: at(last + 600) }])
    // One person may have several organizations, projects and accounts.
    expect(all([...four, sisters], last, 2)).toEqual([])
    expect(all([...four, fronts], last, 2)).toEqual([])
    expect(all([...four, deadBoot(40, { ...broken, ...of("other") })], last, 2)).toEqual([])
    expect(all([...four, deadBoot(40, { account: "43" })], last, 2)).toEqual([])
  })

  test("pauses no account for others whose own VM registered in the last hour", () => {
    const good = (registered: number, spec: Partial<LaunchSpec> = {}) =>
      launchOf(jobOf(), 1, { spec, status: vmStatus({ agent: agentOf({ registrationTime: time(registered) }) }) })
    const row = [...four, rivals]
    expect(all([...row, good(0)], last, 2)).toEqual([])
    expect(all([...row, good(last - 3601)], last, 2)).toHaveLength(1)
    expect(all([...row, good(0, { account: "99" })], last, 2)).toHaveLength(1)
  })

  test("pauses all accounts of one person's installation for several projects if no VM registered lately", () => {
    expect(all([...four, sisters], last, 1)).toHaveLength(1)
    expect(pauses([...four, sisters], last)).toHaveLength(1)
    expect(pauses([...four, deadBoot(40, { account: "43" })], last)).toEqual([])
    const good = launchOf(jobOf(), 1, {
      spec: { account: "99" },
      status: vmStatus({ agent: agentOf({ registrationTime: time(0) }) }),
    })
    expect(pauses([...four, sisters, good], last)).toEqual([])
  })
})
