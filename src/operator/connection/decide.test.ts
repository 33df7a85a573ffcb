import { describe, expect, test } from "vitest"
import { CredentialsUnusable, type FoundCredentials } from "../../accounts/credentials.ts"
import type { Capabilities, Capability } from "../../clouds/account.ts"
import { setCondition } from "../../core/apis/conditions.ts"
import { ConnectionReason, type ConnectionStatus, type StoredConnection } from "../../core/apis/connection.ts"
import { decide } from "./decide.ts"
import type { Attempt, ConnectionObservation, Outcome } from "./gather.ts"
import { CONNECTION_DEFAULTS as SETTINGS } from "./settings.ts"

const T0 = Date.parse("2026-05-01T12:00:00Z")
const at = (seconds: number): Date => new Date(T0 + seconds * 1000)
const time = (seconds: number): string => at(seconds).toISOString().replace(".000Z", "Z")

const credentials: FoundCredentials = { fields: { token: "secret" }, version: "sealed/1", project: "acme" }
const nothing: ConnectionObservation = { credentials, isOutdated: false, regions: [] }

function connectionOf(status?: ConnectionStatus, generation = 1): StoredConnection {
  const uid = "80000000-0000-4000-8000-000000000000"
  const metadata = {
    name: "main",
    namespace: "team",
    uid,
    resourceVersion: "1",
    generation,
    creationTimestamp: time(0),
  }
  const spec = { type: "aws", sealedCredentials: "…" } as const
  return { apiVersion: "berth.dev/v1alpha1", kind: "Connection", metadata, spec, ...(status && { status }) }
}

/** Returns a status verified at T0. */
function verified(): ConnectionStatus {
  const { status } = decide(
    connectionOf(),
    { ...nothing, attempt: attempt({ is: "verified", account: "1" }) },
    at(0),
    SETTINGS,
  )
  return status ?? {}
}

function attempt(outcome: Outcome, changes: Partial<Attempt> = {}): Attempt {
  return { version: "sealed/1", settings: {}, time: at(0), outcome, count: 1, ...changes }
}

const verify = { do: "verify", credentials, regions: [] }

describe("a check that a user asks for", () => {
  const asked = (status: ConnectionStatus | undefined, request = "r1"): StoredConnection => {
    const connection = connectionOf(status)
    return {
      ...connection,
      metadata: { ...connection.metadata, annotations: { "berth.dev/check-requested": request } },
    }
  }
  const good = { is: "verified", account: "1" } as const

  test("is done at once, but not within 10 seconds of another one, and is answered once", () => {
    const first = decide(asked(verified()), { ...nothing, attempt: attempt(good) }, at(4), SETTINGS)
    expect(first).toEqual({ actions: [], requeueAfter: 6 })
    const due = decide(asked(verified()), { ...nothing, attempt: attempt(good) }, at(10), SETTINGS)
    expect(due.actions).toEqual([{ ...verify, request: "r1" }])
    const afterRestart = decide(asked(verified()), nothing, at(4), SETTINGS)
    expect(afterRestart.actions).toEqual([{ ...verify, request: "r1" }])
    const answered = attempt(good, { time: at(10), request: "r1" })
    const { status, actions } = decide(asked(verified()), { ...nothing, attempt: answered }, at(11), SETTINGS)
    const message = "the credentials open aws 1"
    expect([actions, status?.lastCheck]).toEqual([[], { request: "r1", time: time(10), reason: "Verified", message }])
    const later = { ...nothing, attempt: attempt(good, { time: at(50) }) }
    expect(decide(asked(status), later, at(60), SETTINGS)).not.toHaveProperty("status.lastCheck.time", time(50))
    expect(decide(asked(status, "r2"), { ...nothing, attempt: answered }, at(60), SETTINGS).actions).toHaveLength(1)
  })

  test.each<[Outcome, string]>([
    [{ is: "unreachable", message: "ENOTFOUND" }, "ProviderUnreachable"],
    [{ is: "refused", message: "no such key" }, "CredentialsRefused"],
    [{ is: "unsupported" }, "Unverified"],
  ])("has the result %j, also while the connection stays Ready", (outcome, reason) => {
    const observed = { ...nothing, attempt: attempt(outcome, { time: at(60), request: "r1" }) }
    const { status } = decide(asked(verified()), observed, at(60), SETTINGS)
    expect(status?.lastCheck).toMatchObject({ request: "r1", time: time(60), reason })
    const ready = status?.conditions?.find(({ type }) => type === "Ready")
    expect(ready?.status).toBe(outcome.is === "unreachable" ? "True" : "False")
  })

  test("is answered without the provider if there are no credentials", () => {
    const unusable = new CredentialsUnusable(ConnectionReason.SecretNotFound, "the Secret x is missing")
    const { status, actions } = decide(asked(undefined), { ...nothing, credentials: unusable }, at(3), SETTINGS)
    expect(actions).toEqual([])
    expect(status?.lastCheck).toMatchObject({ request: "r1", reason: "SecretNotFound", time: time(3) })
    expect(decide(asked(status), { ...nothing, credentials: unusable }, at(9), SETTINGS)).not.toHaveProperty("status")
  })

  test("is answered once, also with a long text", () => {
    const long = "r".repeat(500)
    const one = decide(asked(verified(), long), nothing, at(4), SETTINGS)
    const [action] = one.actions
    const request = action?.do === "verify" ? (action.request ?? "") : ""
    expect(request).toHaveLength(128)
    const answered = { ...nothing, attempt: attempt(good, { time: at(4), request }) }
    const { status } = decide(asked(verified(), long), answered, at(5), SETTINGS)
    expect(decide(asked(status, long), answered, at(60), SETTINGS).actions).toEqual([])
  })
})

describe("a cooldown of the connection", () => {
  const until = at(300)
  const cause = { group: "aws rejected 20 launches of connection main", detail: "NoVpc: none", remedy: "create one" }
  const cooling = { ...nothing, cooldown: { cloud: "aws", connection: "main", until, cause } }

  test("is a condition with cause, number, end and remedy, until it ends", () => {
    const began = decide(connectionOf(verified()), cooling, at(10), SETTINGS)
    const message = `${cause.group}: NoVpc: none; Berth launches no VM with this connection until ${time(300)}; create one`
    expect(began.status?.conditions).toContainEqual(
      expect.objectContaining({ type: "CoolingDown", status: "True", reason: "LaunchesRejected", message }),
    )
    expect(began.events).toEqual([{ type: "Warning", reason: "LaunchesRejected", message }])
    expect(began.requeueAfter).toBe(290)
    const ended = decide(connectionOf(began.status), nothing, at(300), SETTINGS)
    expect(ended.status?.conditions).toContainEqual(expect.objectContaining({ type: "CoolingDown", status: "False" }))
    expect(ended.events).toEqual([{ type: "Normal", reason: "NoCooldown", message: "the cooldown has ended" }])
  })

  test("names its region or quota; a connection without any has no such condition", () => {
    const region = { ...cooling, cooldown: { ...cooling.cooldown, region: "r", gpu: true } }
    const { status } = decide(connectionOf(verified()), region, at(10), SETTINGS)
    expect(status?.conditions?.at(-1)?.message).toContain("launches no VM in r with GPUs with this connection")
    expect(verified().conditions?.map(({ type }) => type)).not.toContain("CoolingDown")
  })
})

describe("the prices of the connection's cloud", () => {
  const shipped = { what: "spot", date: "2025-04-24", isShipped: true, isCurrent: false }

  test("are a condition and an event when their state changes, and no write otherwise", () => {
    const denied = { ...shipped, failure: { isForbidden: true, message: "AccessDenied: no" } }
    const began = decide(connectionOf(verified()), { ...nothing, prices: [denied] }, at(10), SETTINGS)
    const message = "AccessDenied: no; Berth uses the shipped spot prices of 2025-04-24"
    expect(began.status?.conditions?.at(-1)).toMatchObject({
      type: "Prices",
      status: "False",
      reason: "Forbidden",
      message,
    })
    expect(began.events).toEqual([{ type: "Warning", reason: "Forbidden", message }])
    const again = decide(connectionOf(began.status), { ...nothing, prices: [denied] }, at(20), SETTINGS)
    expect(again).not.toHaveProperty("status")
    const afterRestart = decide(connectionOf(began.status), { ...nothing, prices: [shipped] }, at(30), SETTINGS)
    expect(afterRestart).not.toHaveProperty("status")
    const current = { ...shipped, date: "2026-05-01", isShipped: false, isCurrent: true }
    const read = decide(connectionOf(began.status), { ...nothing, prices: [current] }, at(40), SETTINGS)
    expect(read.events).toMatchObject([{ type: "Normal", reason: "Read" }])
  })
})

describe("verification", () => {
  test("starts at once for new credentials, with condition Reconciling", () => {
    const decision = decide(connectionOf(), nothing, at(0), SETTINGS)
    expect(decision.actions).toEqual([verify])
    expect(decision.status?.conditions).toMatchObject([
      { type: "Ready", status: "False", reason: "Verifying", observedGeneration: 1 },
      { type: "Reconciling", status: "True" },
    ])
  })

  test.each<[string, Outcome, number, number]>([
    ["verified: after the interval", { is: "verified", account: "1" }, 1, 3600],
    [
      "verified, but unable to start VMs",
      {
        is: "verified",
        account: "1",
        capabilities: { vms: { is: "denied", reason: "NetworkMissing", message: "" } },
      },
      7,
      300,
    ],
    ["refused", { is: "refused", message: "" }, 1, 15],
    ["rejected again", { is: "refused", message: "" }, 2, 30],
    ["rejected many times: after the interval at most", { is: "refused", message: "" }, 30, 3600],
    ["unreachable", { is: "unreachable", message: "" }, 1, 10],
    ["unreachable many times", { is: "unreachable", message: "" }, 30, 300],
  ])("is repeated after a while by its results: %s", (_, outcome, count, seconds) => {
    const observed = { ...nothing, attempt: attempt(outcome, { count }) }
    expect(decide(connectionOf(), observed, at(0), SETTINGS)).toMatchObject({ actions: [], requeueAfter: seconds })
    expect(decide(connectionOf(), observed, at(seconds - 1), SETTINGS).actions).toEqual([])
    expect(decide(connectionOf(), observed, at(seconds), SETTINGS).actions).toEqual([verify])
  })

  test("is repeated at once when the settings of VMs have changed, such as their network", () => {
    const connection = connectionOf(verified())
    const changed = { ...connection, spec: { ...connection.spec, subnets: { "eu-west-1": ["subnet-0a1b2c3d"] } } }
    const observed = { ...nothing, attempt: attempt({ is: "verified", account: "1" }) }
    expect(decide(connection, observed, at(1), SETTINGS).actions).toEqual([])
    expect(decide(changed, observed, at(1), SETTINGS).actions).toEqual([verify])
    const checked = { ...observed, attempt: { ...observed.attempt, settings: { subnets: changed.spec.subnets } } }
    expect(decide(changed, checked, at(1), SETTINGS).actions).toEqual([])
  })

  test("is not repeated by a new process before the interval has passed", () => {
    const connection = connectionOf(verified())
    expect(decide(connection, nothing, at(3599), SETTINGS)).toEqual({ actions: [], requeueAfter: 1 })
    expect(decide(connection, nothing, at(3600), SETTINGS)).toEqual({ actions: [verify] })
  })

  test("is repeated once for each later launch that a cloud rejects", () => {
    const connection = connectionOf(verified())
    const refused = (refusedTime: string, known?: string): ConnectionObservation => ({
      ...{ ...nothing, refusedTime },
      attempt: attempt({ is: "verified", account: "1" }, known === undefined ? {} : { refusedTime: known }),
    })
    expect(decide(connection, refused(time(0)), at(1), SETTINGS).actions).toEqual([{ ...verify, refusedTime: time(0) }])
    expect(decide(connection, refused(time(5)), at(6), SETTINGS).actions).toEqual([{ ...verify, refusedTime: time(5) }])
    expect(decide(connection, refused(time(-1)), at(6), SETTINGS).actions).toEqual([])
    expect(decide(connection, refused(time(5), time(5)), at(6), SETTINGS).actions).toEqual([])
  })

  test("never runs for unsupported or unreadable credentials", () => {
    const unsupported = { ...nothing, attempt: attempt({ is: "unsupported" }) }
    expect(decide(connectionOf(), unsupported, at(9999), SETTINGS)).toMatchObject({ actions: [] })
    expect(decide(connectionOf(), unsupported, at(9999), SETTINGS)).not.toHaveProperty("requeueAfter")
    const unreadable = { ...nothing, credentials: new CredentialsUnusable(ConnectionReason.Tampered, "no") }
    expect(decide(connectionOf(), unreadable, at(0), SETTINGS)).toMatchObject({ actions: [] })
  })
})

describe("the status", () => {
  const unreachable = attempt({ is: "unreachable", message: "down" }, { time: at(100) })

  test("stays Ready within the grace period while the provider is unreachable", () => {
    const connection = connectionOf(verified())
    const observed = { ...nothing, attempt: unreachable }
    expect(decide(connection, observed, at(101), SETTINGS).status).toBeUndefined()
    expect(decide(connection, observed, at(SETTINGS.unreachableGraceSeconds), SETTINGS).status).toMatchObject({
      account: "1",
      conditions: [{ type: "Ready", status: "False", reason: "ProviderUnreachable" }, { status: "True" }],
    })
  })

  test("has no account after a change of the credentials", () => {
    const other = { ...credentials, version: "sealed/2" }
    const { status } = decide(connectionOf(verified(), 2), { ...nothing, credentials: other }, at(9), SETTINGS)
    expect(status).not.toHaveProperty("account")
    expect(status).not.toHaveProperty("lastVerifiedTime")
    expect(status?.conditions?.[0]).toMatchObject({ status: "False", reason: "Verifying", observedGeneration: 2 })
  })

  test("stays Ready for the new generation if the same credentials are sealed under another key", () => {
    const { status, actions } = decide(connectionOf(verified(), 2), nothing, at(9), SETTINGS)
    expect(actions).toEqual([])
    expect(status).toMatchObject({ account: "1", observedGeneration: 2, conditions: [{ status: "True" }, {}] })
    expect(status?.conditions?.map((condition) => condition.observedGeneration)).toEqual([2, 2])
  })

  test("keeps a rejection that a former process wrote until the provider has answered", () => {
    const why = { status: "False", reason: "CredentialsRefused", message: "no" } as const
    const conditions = setCondition([], { type: "Ready", ...why }, 1, at(0))
    const connection = connectionOf({ conditions, observedGeneration: 1 })
    expect(decide(connection, nothing, at(9), SETTINGS)).toEqual({ actions: [verify] })
  })

  test.each<[string, ConnectionReason, "Reconciling" | "Stalled"]>([
    ["may still arrive", ConnectionReason.SecretNotFound, "Reconciling"],
    ["may still arrive", ConnectionReason.NoProject, "Reconciling"],
    ["only a user can correct", ConnectionReason.WrongSecretType, "Stalled"],
    ["only a user can correct", ConnectionReason.InvalidCredentials, "Stalled"],
    ["only a user can correct", ConnectionReason.UnknownKey, "Stalled"],
    ["only a user can correct", ConnectionReason.Tampered, "Stalled"],
  ])("has for credentials that %s (%s) the condition %s", (_, reason, is) => {
    const observed = { ...nothing, credentials: new CredentialsUnusable(reason, "why") }
    const { conditions } = decide(connectionOf(), observed, at(0), SETTINGS).status ?? {}
    expect(conditions?.filter(({ status }) => status === "True")).toMatchObject([{ type: is, reason, message: "why" }])
  })

  test("keeps used regions, at most the latest 128", () => {
    const many = Array.from({ length: 130 }, (_, number) => `region-${number}`)
    const { status } = decide(
      connectionOf({ ...verified(), regions: ["old"] }),
      { ...nothing, regions: many },
      at(1),
      SETTINGS,
    )
    expect(status?.regions).toHaveLength(128)
    expect(status?.regions?.at(-1)).toBe("region-129")
    expect(status?.regions).not.toContain("old")
  })
})

test("credentials under a former key are sealed again first", () => {
  const outdated = { ...nothing, isOutdated: true }
  const { actions } = decide(connectionOf(verified()), outdated, at(1), SETTINGS)
  expect(actions).toEqual([{ do: "reseal", project: "acme" }])
  expect(decide(connectionOf(), outdated, at(1), SETTINGS).actions).toEqual([{ do: "reseal", project: "acme" }])
})

test("a connection that is being deleted is left alone", () => {
  const connection = connectionOf()
  connection.metadata.deletionTimestamp = time(0)
  expect(decide(connection, { ...nothing, isOutdated: true }, at(0), SETTINGS)).toEqual({ actions: [] })
})

describe("capabilities", () => {
  /** Decides on the outcome of a verification of these credentials. */
  const statusAfter = (capabilities: Capabilities | undefined, status?: ConnectionStatus) =>
    decide(
      connectionOf(status),
      {
        ...nothing,
        attempt: attempt({ is: "verified", account: "1", ...(capabilities && { capabilities }) }, { time: at(9) }),
      },
      at(9),
      SETTINGS,
    ).status ?? status
  const permitted = (status: ConnectionStatus | undefined) =>
    status?.conditions?.find(({ type }) => type === "LaunchPermitted")
  const DENIED: Capability = { is: "denied", reason: "NetworkMissing", message: "no network x: create it" }

  test.each<[Capability, object]>([
    [
      { is: "granted", message: "all fine" },
      { status: "True", reason: "PermissionsGranted", message: "all fine" },
    ],
    [
      DENIED,
      {
        status: "False",
        reason: "NetworkMissing",
        message: "no VM is started with this connection: no network x: create it",
      },
    ],
    [
      { is: "unknown", message: "add x" },
      { status: "Unknown", reason: "PermissionsUnknown", message: "add x" },
    ],
    [
      { is: "unanswered", message: "HTTP 503" },
      { status: "Unknown", reason: "Unanswered", message: "HTTP 503" },
    ],
  ])("follow the provider's answer %o for new credentials, and the connection is Ready", (vms, expected) => {
    const status = statusAfter({ vms, buckets: { is: "granted", message: "b" } })
    expect(status?.capabilities).toEqual({
      vms: expected,
      buckets: { status: "True", reason: "PermissionsGranted", message: "b" },
    })
    expect(permitted(status)).toMatchObject(expected)
    expect(status?.conditions?.[0]).toMatchObject({ type: "Ready", status: "True" })
  })

  test("stay while the provider does not answer, and are absent before the first answer", () => {
    const denied = statusAfter({ vms: DENIED })
    expect(statusAfter(undefined, denied)?.capabilities?.vms).toMatchObject({ status: "False" })
    const unanswered = statusAfter({ vms: { is: "unanswered", message: "503" } }, denied)
    expect(unanswered?.capabilities?.vms).toMatchObject({ status: "False" })
    expect(permitted(unanswered)).toMatchObject({ status: "False" })
    expect(statusAfter(undefined)?.capabilities).toBeUndefined()
  })

  test("are not taken over from other credentials", () => {
    const denied = { ...statusAfter({ vms: DENIED }), verifiedCredentials: "others" }
    expect(statusAfter(undefined, denied)?.capabilities).toBeUndefined()
    const unanswered = statusAfter({ vms: { is: "unanswered", message: "503" } }, denied)
    expect(permitted(unanswered)).toMatchObject({ status: "Unknown", reason: "Unanswered" })
  })
})
