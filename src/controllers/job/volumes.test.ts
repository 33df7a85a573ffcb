import { describe, expect, it } from "vitest"
import { at, INSTALLATION, jobOf, launchOf, marketOf, offerOf, vmStatus } from "../../../test/controllers/builders.ts"
import { systemClock } from "../../apis/clock.ts"
import { findCondition } from "../../apis/conditions.ts"
import type { JobSpec, StoredJob } from "../../apis/job.ts"
import { fixedOffers } from "../../catalogue/offers.ts"
import { IndexedStore } from "../../kube/store.ts"
import { catalogueOf } from "../../router/catalogue.ts"
import { launchIndexes } from "../launch/controller.ts"
import { decide } from "./decide.ts"
import type { Market } from "./market.ts"
import { jobPlanner } from "./plan.ts"
import { JOB_DEFAULTS } from "./settings.ts"
import { type BucketState, type Buckets, findVolumes } from "./volumes.ts"

const VOLUMES: NonNullable<JobSpec["volumes"]> = {
  data: { bucket: "cargo", mountPath: "/data" },
  out: { bucket: "logs", mountPath: "/out", connection: "mine", prefix: "a" },
}

/** Finds these, and notes what it is asked. */
function bucketsWith(states: Record<string, BucketState>): Buckets & { asked: string[] } {
  const asked: string[] = []
  const find: Buckets["find"] = (namespace, bucket, connection) => {
    asked.push([namespace, bucket, ...(connection === undefined ? [] : [connection])].join(" "))
    return states[bucket] ?? { state: "looking" }
  }
  return { find, whenFound: async (...asking) => find(...asking), asked }
}

const CARGO: BucketState = { state: "reached", connection: "aws", type: "aws", region: "eu-west-1" }
const LOGS: BucketState = { state: "reached", connection: "mine", type: "cloudflare" }

function decideWith(job: StoredJob, states: Record<string, BucketState>, market: Partial<Market> = {}) {
  const volumes = findVolumes(job, bucketsWith(states))
  const observed = { launches: [], market: () => marketOf(market), installation: INSTALLATION }
  return decide(job, { ...observed, ...(volumes && { volumes }) }, at(0), JOB_DEFAULTS)
}

describe("a job with volumes", () => {
  const job = jobOf({ spec: { volumes: VOLUMES } })

  it("is launched with the connections that reach its buckets, which its status tells", () => {
    const { actions, status } = decideWith(job, { cargo: CARGO, logs: LOGS })
    const created = actions.find((action) => action.do === "createLaunch")
    expect(created?.do === "createLaunch" && created.launch.spec.run.volumes).toEqual({
      data: { bucket: "cargo", mountPath: "/data", connection: "aws" },
      out: { bucket: "logs", mountPath: "/out", connection: "mine", prefix: "a" },
    })
    expect(status.volumes).toEqual({ data: { connection: "aws", region: "eu-west-1" }, out: { connection: "mine" } })
  })

  it("waits while its buckets are looked for, and looks again soon", () => {
    const { actions, status, requeueAfter } = decideWith(job, { logs: LOGS })
    expect(actions.map((action) => action.do)).not.toContain("createLaunch")
    expect(status).toMatchObject({ phase: "queued", reason: "Queued" })
    expect(status.message).toBe("looks for the connection that reaches cargo")
    expect(requeueAfter).toBe(1)
  })

  it("says of a bucket that nobody reaches which it is, why, and what to do; and waits", () => {
    const why = "aws: no such bucket, or no access to it"
    const decision = decideWith(job, { cargo: CARGO, logs: { state: "notReached", why } })
    const message =
      `volume out: bucket logs: connection mine does not reach it (${why}); ` +
      "correct the bucket or give a connection access to it"
    expect(decision.status).toMatchObject({ phase: "queued", reason: "BucketNotReached", message })
    expect(findCondition(decision.status.conditions, "Placed")).toMatchObject({
      status: "False",
      reason: "BucketNotReached",
    })
    expect(decision.events).toEqual([{ type: "Warning", reason: "BucketNotReached", message }])
    expect(decision.requeueAfter).toBe(60)
    expect(decideWith(job, { cargo: { state: "notReached", why } }).status.message).toContain(
      "volume data: bucket cargo: no connection of the project reaches it",
    )
  })

  it("is placed near its bucket where reading it from afar costs more", () => {
    const near = offerOf({ cloud: "aws", region: "eu-west-1", hourlyPriceUsd: 1 })
    const far = offerOf({ cloud: "aws", region: "us-east-1", hourlyPriceUsd: 0.95 })
    const offers = catalogueOf([near, far])
    const market = { offers, payers: [{ cloud: "aws" }] }
    const one = jobOf({ spec: { volumes: { data: { bucket: "cargo", mountPath: "/data" } } } })
    expect(decideWith(one, { cargo: CARGO }, market).status.placement?.offer.region).toBe("eu-west-1")
    expect(decideWith(jobOf({}), {}, market).status.placement?.offer.region).toBe("us-east-1")
  })

  it("has a plan that tells what then becomes of it", async () => {
    const near = offerOf({ cloud: "aws", region: "eu-west-1", hourlyPriceUsd: 1 })
    const far = offerOf({ cloud: "aws", region: "us-east-1", hourlyPriceUsd: 0.95 })
    const market = { offers: catalogueOf([near, far]), payers: [{ cloud: "aws" }] }
    const caches = {
      jobs: { store: new IndexedStore<StoredJob>() },
      launches: { store: new IndexedStore(launchIndexes) },
    }
    const sources = { ...caches, offers: fixedOffers([near, far]), payers: { of: () => market.payers } }
    const clock = { ...systemClock, now: () => at(0) }
    const lost: BucketState = { state: "notReached", why: "aws: no such bucket, or no access to it" }
    const situations: Record<string, BucketState>[] = [{ cargo: CARGO, logs: LOGS }, { cargo: CARGO }, { logs: lost }]
    for (const states of situations) {
      const plan = jobPlanner({ ...sources, clock, buckets: bucketsWith(states) })
      const { reason, message, placements } = await plan("team", job.spec)
      const { status } = decideWith(job, states, market)
      expect(findCondition(status.conditions, "Placed")).toMatchObject({ reason, message })
      expect(placements[0]?.offer).toEqual(status.placement?.offer)
    }
  })

  it("asks nobody while it runs or has none, and tells after a crash what its Launch knows", () => {
    const buckets = bucketsWith({})
    expect(findVolumes(jobOf({ spec: { volumes: VOLUMES }, status: { phase: "running" } }), buckets)?.kind).toBe(
      "looking",
    )
    expect(findVolumes(jobOf({}), buckets)).toBeUndefined()
    expect(buckets.asked).toEqual([])
    findVolumes(job, buckets)
    expect(buckets.asked).toEqual([`${job.metadata.namespace} cargo`, `${job.metadata.namespace} logs mine`])

    const launch = launchOf(job, 1, { status: vmStatus() })
    launch.spec.run = {
      ...launch.spec.run,
      volumes: { data: { bucket: "cargo", mountPath: "/data", connection: "aws" } },
    }
    const observed = { launches: [launch], market: () => marketOf({}), installation: INSTALLATION }
    expect(decide(job, observed, at(0), JOB_DEFAULTS).status.volumes).toEqual({ data: { connection: "aws" } })
  })
})
