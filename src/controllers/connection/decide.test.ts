import { describe, expect, test } from "vitest"
import { setCondition } from "../../apis/conditions.ts"
import { ConnectionReason, type ConnectionStatus, type StoredConnection } from "../../apis/connection.ts"
import type { LaunchPermission } from "../../cloud/account.ts"
import { CredentialsUnusable, type FoundCredentials } from "./credentials.ts"
import { decide } from "./decide.ts"
import type { Attempt, ConnectionObservation, Outcome } from "./gather.ts"
import { CONNECTION_DEFAULTS as SETTINGS } from "./options.ts"

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

/** Verified at T0. */
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
  return { version: "sealed/1", time: at(0), outcome, count: 1, ...changes }
}

const verify = { do: "verify", credentials }

describe("the provider is asked", () => {
  test("at once about new credentials, which are told to be in the making", () => {
    const decision = decide(connectionOf(), nothing, at(0), SETTINGS)
    expect(decision.actions).toEqual([verify])
    expect(decision.status?.conditions).toMatchObject([
      { type: "Ready", status: "False", reason: "Verifying", observedGeneration: 1 },
      { type: "Reconciling", status: "True" },
    ])
  })

  test.each<[string, Outcome, number, number]>([
    ["verified: after the interval", { is: "verified", account: "1" }, 1, 3600],
    ["refused", { is: "refused", message: "" }, 1, 15],
    ["refused again", { is: "refused", message: "" }, 2, 30],
    ["refused for long: after the interval at the latest", { is: "refused", message: "" }, 30, 3600],
    ["unreachable", { is: "unreachable", message: "" }, 1, 10],
    ["unreachable for long", { is: "unreachable", message: "" }, 30, 300],
  ])("%s", (_, outcome, count, seconds) => {
    const observed = { ...nothing, attempt: attempt(outcome, { count }) }
    expect(decide(connectionOf(), observed, at(0), SETTINGS)).toMatchObject({ actions: [], requeueAfter: seconds })
    expect(decide(connectionOf(), observed, at(seconds - 1), SETTINGS).actions).toEqual([])
    expect(decide(connectionOf(), observed, at(seconds), SETTINGS).actions).toEqual([verify])
  })

  test("not again about what the status says was verified a while ago, by a process that has just started", () => {
    const connection = connectionOf(verified())
    expect(decide(connection, nothing, at(3599), SETTINGS)).toEqual({ actions: [], requeueAfter: 1 })
    expect(decide(connection, nothing, at(3600), SETTINGS)).toEqual({ actions: [verify] })
  })

  test("when a cloud has refused a launch since, once for each refusal", () => {
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

  test("never about what it is known not to answer, nor about what can't be read", () => {
    const unsupported = { ...nothing, attempt: attempt({ is: "unsupported" }) }
    expect(decide(connectionOf(), unsupported, at(9999), SETTINGS)).toMatchObject({ actions: [] })
    expect(decide(connectionOf(), unsupported, at(9999), SETTINGS)).not.toHaveProperty("requeueAfter")
    const unreadable = { ...nothing, credentials: new CredentialsUnusable(ConnectionReason.Tampered, "no") }
    expect(decide(connectionOf(), unreadable, at(0), SETTINGS)).toMatchObject({ actions: [] })
  })
})

describe("the status", () => {
  const unreachable = attempt({ is: "unreachable", message: "down" }, { time: at(100) })

  test("of what worked stays while the provider can't be reached, within the grace", () => {
    const connection = connectionOf(verified())
    const observed = { ...nothing, attempt: unreachable }
    expect(decide(connection, observed, at(101), SETTINGS).status).toBeUndefined()
    expect(decide(connection, observed, at(SETTINGS.unreachableGraceSeconds), SETTINGS).status).toMatchObject({
      account: "1",
      conditions: [{ type: "Ready", status: "False", reason: "ProviderUnreachable" }, { status: "True" }],
    })
  })

  test("of other credentials than those that worked says nothing of their account", () => {
    const other = { ...credentials, version: "sealed/2" }
    const { status } = decide(connectionOf(verified(), 2), { ...nothing, credentials: other }, at(9), SETTINGS)
    expect(status).not.toHaveProperty("account")
    expect(status).not.toHaveProperty("lastVerifiedTime")
    expect(status?.conditions?.[0]).toMatchObject({ status: "False", reason: "Verifying", observedGeneration: 2 })
  })

  test("of the same credentials under another key stays, for the new generation", () => {
    const { status, actions } = decide(connectionOf(verified(), 2), nothing, at(9), SETTINGS)
    expect(actions).toEqual([])
    expect(status).toMatchObject({ account: "1", observedGeneration: 2, conditions: [{ status: "True" }, {}] })
    expect(status?.conditions?.map((condition) => condition.observedGeneration)).toEqual([2, 2])
  })

  test("of a refusal that a former process wrote stands until the provider has answered", () => {
    const why = { status: "False", reason: "CredentialsRefused", message: "no" } as const
    const conditions = setCondition([], { type: "Ready", ...why }, 1, at(0))
    const connection = connectionOf({ conditions, observedGeneration: 1 })
    expect(decide(connection, nothing, at(9), SETTINGS)).toEqual({ actions: [verify] })
  })

  test.each<[string, ConnectionReason, "Reconciling" | "Stalled"]>([
    ["may be on its way", ConnectionReason.SecretNotFound, "Reconciling"],
    ["may be on its way", ConnectionReason.NoProject, "Reconciling"],
    ["somebody has to put right", ConnectionReason.WrongSecretType, "Stalled"],
    ["somebody has to put right", ConnectionReason.InvalidCredentials, "Stalled"],
    ["somebody has to put right", ConnectionReason.UnknownKey, "Stalled"],
    ["somebody has to put right", ConnectionReason.Tampered, "Stalled"],
  ])("of what %s (%s) is %s", (_, reason, is) => {
    const observed = { ...nothing, credentials: new CredentialsUnusable(reason, "why") }
    const { conditions } = decide(connectionOf(), observed, at(0), SETTINGS).status ?? {}
    expect(conditions?.filter(({ status }) => status === "True")).toMatchObject([{ type: is, reason, message: "why" }])
  })

  test("remembers regions, the latest of too many", () => {
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

test("what is sealed under a former key is sealed anew first", () => {
  const outdated = { ...nothing, isOutdated: true }
  const { actions } = decide(connectionOf(verified()), outdated, at(1), SETTINGS)
  expect(actions).toEqual([{ do: "reseal", project: "acme" }])
  expect(decide(connectionOf(), outdated, at(1), SETTINGS).actions).toEqual([{ do: "reseal", project: "acme" }])
})

test("one that is being deleted is left alone", () => {
  const connection = connectionOf()
  connection.metadata.deletionTimestamp = time(0)
  expect(decide(connection, { ...nothing, isOutdated: true }, at(0), SETTINGS)).toEqual({ actions: [] })
})

describe("whether VMs can be started is told", () => {
  const told = (launch: LaunchPermission | undefined, status = verified()) =>
    decide(
      connectionOf(status),
      { ...nothing, attempt: attempt({ is: "verified", account: "1", ...(launch && { launch }) }, { time: at(9) }) },
      at(9),
      SETTINGS,
    ).status?.conditions?.find(({ type }) => type === "LaunchPermitted")

  test.each<[LaunchPermission, object]>([
    [{ is: "granted" }, { status: "True", reason: "PermissionsGranted" }],
    [
      { is: "denied", message: "x is missing" },
      { status: "False", reason: "PermissionsMissing", message: "no VM is started with this connection: x is missing" },
    ],
    [
      { is: "unknown", message: "add x" },
      { status: "Unknown", reason: "PermissionsUnknown", message: "add x" },
    ],
  ])("as the provider said: %o, of a connection that is Ready all the same", (launch, expected) => {
    expect(told(launch)).toMatchObject(expected)
    const { status } = decide(
      connectionOf(),
      { ...nothing, attempt: attempt({ is: "verified", account: "1", launch }) },
      at(0),
      SETTINGS,
    )
    expect(status?.conditions?.[0]).toMatchObject({ type: "Ready", status: "True" })
  })

  test("as before while the provider gives no answer, and not at all where it was never asked", () => {
    const denied: LaunchPermission = { is: "denied", message: "x" }
    const { status } = decide(
      connectionOf(),
      { ...nothing, attempt: attempt({ is: "verified", account: "1", launch: denied }) },
      at(0),
      SETTINGS,
    )
    expect(told(undefined, status)).toMatchObject({ status: "False" })
    expect(told(undefined)).toBeUndefined()
  })
})
