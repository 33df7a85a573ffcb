import { describe, expect, test } from "vitest"
import { at, levelOf, OFFERS, offerOf } from "../../../test/harness/builders.ts"
import type { JobSpec } from "../../core/apis/job.ts"
import { createCatalogue } from "../router/catalogue.ts"
import { launchHistory } from "./ledger.ts"
import { appraise, type Market } from "./market.ts"
import { place, placeAmong, planJob } from "./place.ts"
import { JOB_DEFAULTS } from "./settings.ts"

const offers = createCatalogue([...OFFERS, offerOf({ cloud: "other", instanceType: "odd", hourlyPriceUsd: 0.9 })])
const facts = { namespace: "team", launches: launchHistory([]) }
const launchAccounts = [{ cloud: "sim", connection: "main" }]

function marketOf(changes: Partial<Market> = {}): Market {
  return { ...appraise({ ...facts, offers, launchAccounts }, at(0), JOB_DEFAULTS), ...changes }
}

const job = (spec: Partial<JobSpec> = {}) => ({ spec: { image: "busybox", timeoutSeconds: 7200, ...spec } })
const verdict = (market: Partial<Market>, spec: Partial<JobSpec> = {}) =>
  place(job(spec), marketOf(market), at(0), JOB_DEFAULTS)

describe("place", () => {
  test("takes the cheapest that is paid for, and says why", () => {
    expect(verdict({})).toMatchObject({
      kind: "placed",
      placement: { offer: { instanceType: "small" }, launchAccount: { connection: "main" }, totalUsd: 1.2 },
      why:
        "sim small in here (on demand, 2 vCPU, 8 GiB, $0.6/h): cheapest of 3 matching offers on sim, out of 4 in the catalogue; " +
        "the next, sim medium in here, costs $2.4 in total; expected to cost $1.2",
    })
  })

  test("says that a container gets less than its machine has, if that excludes machines", () => {
    expect(verdict({}, { resources: { memory: "8Gi" } })).toMatchObject({
      placement: { offer: { instanceType: "medium" } },
      why: expect.stringMatching(/; expected to cost .2.4; machines with 8 GiB leave 7.5 GiB for the container$/),
    })
    expect(verdict({}, { resources: { memory: "7.5Gi" } })).toMatchObject({
      placement: { offer: { instanceType: "small" } },
      why: expect.not.stringContaining("leave"),
    })
    // Only machines that the project can use: local ones leave all.
    const local = appraise(
      {
        ...facts,
        offers: createCatalogue([...OFFERS, offerOf({ cloud: "local" })]),
        launchAccounts: [{ cloud: "local", connection: "main" }],
      },
      at(0),
      JOB_DEFAULTS,
    )
    expect(verdict(local, { resources: { memory: "8Gi" } })).toMatchObject({
      placement: { offer: { cloud: "local" } },
      why: expect.not.stringContaining("leave"),
    })
  })

  test.each<[string, Partial<Market>, object]>([
    [
      "a connection",
      { launchAccounts: [] },
      {
        reason: "NoConnection",
        message: "4 offers match, but the project has no Ready connection for them: add one of type other or sim",
      },
    ],
    [
      "a connection that may create VMs",
      {
        launchAccounts: [],
        deniedAccounts: [
          { cloud: "sim", connection: "main", message: "its role lacks x: add it" },
          { cloud: "elsewhere", connection: "odd", message: "not asked about" },
        ],
      },
      {
        reason: "NoConnection",
        message:
          "4 offers match, but the project has no Ready connection for them: add one of type other or sim; " +
          "connection main: its role lacks x: add it",
      },
    ],
    [
      "the agent's image to be looked up",
      { agentImage: { state: "looking" } },
      { reason: "Queued", message: "resolving the CPU architectures of Berth's agent image", seconds: 1 },
    ],
    [
      "an agent's image that exists",
      { agentImage: { state: "missing", why: "registry r: HTTP 404" } },
      {
        reason: "AgentImageMissing",
        message: "no VM could pull Berth's agent image: registry r: HTTP 404; correct the operator's --agent-image",
        seconds: 60,
      },
    ],
    [
      "an agent's image that runs where the job's does",
      {
        image: { state: "known", architectures: ["amd64"] },
        agentImage: { state: "known", architectures: ["arm64"] },
      },
      {
        reason: "AgentImageMismatch",
        message: expect.stringMatching(/agent image is for arm64 only: push/),
        seconds: 60,
      },
    ],
    [
      "a cooldown to end",
      { cooldowns: [{ cloud: "sim", until: at(300) }] },
      {
        reason: "NoCapacity",
        message:
          "all 3 matching offers are in cooldown after the cloud rejected them; next attempt at 2026-05-01T12:05:00Z",
        seconds: 300,
      },
    ],
    [
      "room under a cap",
      { levels: [levelOf({ maxHourlyUsd: 0.5 })] },
      {
        reason: "CapReached",
        message:
          "the project's cap of $0.5 an hour leaves $0.5: 0 VMs cost $0/h; the cheapest of 3 matching offers needs $0.6/h, $1.2 for the job; that is more than the whole cap: raise it",
      },
    ],
    [
      "a cooldown to end whose cause is known",
      {
        cooldowns: [
          {
            cloud: "sim",
            connection: "main",
            until: at(300),
            cause: {
              group: "sim rejected 20 launches of connection main",
              detail: "NoVpc: none",
              remedy: "create one",
            },
          },
        ],
      },
      {
        reason: "NoCapacity",
        message:
          "all 3 matching offers are in cooldown: sim rejected 20 launches of connection main: NoVpc: none; " +
          "next attempt at 2026-05-01T12:05:00Z; create one",
      },
    ],
    ["an offer", { offers: createCatalogue([]) }, { reason: "NoCapacity", message: "the catalogue has no offers yet" }],
  ])("waits for %s", (_, market, expected) => {
    expect(verdict(market)).toMatchObject({ kind: "wait", ...expected })
  })

  const [aws, sim] = [
    { cloud: "other", connection: "aws" },
    { cloud: "sim", connection: "main" },
  ]

  test("takes another account's offer while launches of the cheaper one are paused", () => {
    const paused = [{ ...sim, until: at(60) }]
    const found = verdict({ launchAccounts: [aws, sim], paused })
    expect(found).toMatchObject({ kind: "placed", placement: { offer: { instanceType: "odd" }, launchAccount: aws } })
    expect(found.kind === "placed" && found.why).toContain(
      "cheapest available of 4 matching offers on other or sim, out of 4 in the catalogue; 1 that ranks before it is in cooldown until 2026-05-01T12:01:00Z; no other is available now",
    )
    const needsMore = { resources: { cpu: 4 } }
    const waits = verdict({ launchAccounts: [aws, sim], paused }, needsMore)
    expect(waits).toMatchObject({ kind: "wait", reason: "LaunchesPaused", seconds: 60 })
    // The pause doesn't hold what is in cooldown anyway.
    const cooldowns = [{ cloud: "sim", until: at(300) }]
    expect(verdict({ launchAccounts: [aws, sim], paused, cooldowns }, needsMore)).toMatchObject({
      reason: "NoCapacity",
    })
    const planned = planJob(job(needsMore), marketOf({ launchAccounts: [sim], paused }), at(0), JOB_DEFAULTS)
    expect(planned).toMatchObject({ verdict: "waits", reason: "LaunchesPaused" })
    expect(planned.placements.map(({ offer }) => offer.instanceType)).toEqual(["medium", "large"])
  })

  test.each<[string, Partial<Market>, (string | undefined)[]]>([
    ["has no connection yet", { launchAccounts: [] }, [undefined, undefined, undefined, undefined]],
    [
      "waits for cooldowns",
      { launchAccounts: [sim], cooldowns: [{ cloud: "sim", until: at(300) }] },
      ["main", "main", "main"],
    ],
    [
      "waits for room under a cap",
      { launchAccounts: [sim], levels: [levelOf({ maxHourlyUsd: 0.5 })] },
      ["main", "main", "main"],
    ],
  ])("a plan of a job that %s has the machines that it gets later, with their prices", (_, market, connections) => {
    const plan = planJob(job(), marketOf(market), at(0), JOB_DEFAULTS)
    expect(plan.verdict).toBe("waits")
    expect(plan.placements.map(({ launchAccount }) => launchAccount.connection)).toEqual(connections)
    expect(plan.placements[0]?.totalUsd).toBe(1.2)
    expect(plan.ranking).toHaveLength(connections.length)
  })

  test("a plan has the verdict of its job; a job that only waits for the launch rate has placements", () => {
    const market = marketOf({ rateWaitSeconds: 7 })
    const { verdict: found, placements } = placeAmong(job(), market, at(0), JOB_DEFAULTS)
    expect(found).toMatchObject({ kind: "wait", reason: "CapReached", seconds: 7 })
    expect(placements.map(({ offer }) => offer.instanceType)).toEqual(["small", "medium", "large"])
    const plan = planJob(job(), market, at(0), JOB_DEFAULTS)
    expect(plan).toMatchObject({
      verdict: "waits",
      reason: "CapReached",
      message: (found as { message: string }).message,
    })
    expect(plan.placements).toEqual(placements)
    expect(plan.ranking).toHaveLength(3)
    expect(planJob(job({ resources: { cpu: 99 } }), market, at(0), JOB_DEFAULTS)).toMatchObject({
      verdict: "noOffer",
      reason: "NoOffer",
      placements: [],
      ranking: [],
    })
  })
})
