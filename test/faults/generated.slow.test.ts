import fc from "fast-check"
import { beforeAll, describe, expect, test } from "vitest"
import { installBase } from "../../dev/base.ts"
import { API_KEY, ApiKeyCondition } from "../../src/core/apis/apikey.ts"
import { CONNECTION, ConnectionReason } from "../../src/core/apis/connection.ts"
import { CRON_JOB } from "../../src/core/apis/cronjob.ts"
import { JOB } from "../../src/core/apis/job.ts"
import type { KindDefinition } from "../../src/core/apis/kind.ts"
import { ORGANIZATION } from "../../src/core/apis/organization.ts"
import { PROJECT } from "../../src/core/apis/project.ts"
import type { Condition } from "../../src/core/apis/schema.ts"
import { makeApiKey } from "../../src/core/identity/apikeys.ts"
import { ROLE_BINDINGS } from "../../src/core/identity/role-bindings.ts"
import { SECRETS } from "../../src/core/kube/core.ts"
import { ifFound, KubeError } from "../../src/core/kube/errors.ts"
import { type ApiObject, declareResource } from "../../src/core/kube/resource.ts"
import { eventually } from "../harness/eventually.ts"
import { sharedClient } from "../harness/namespace.ts"
import { openSim } from "./crash-clouds.ts"
import { Fixture } from "./crash-fixture.ts"
import { Plan } from "./crash-gate.ts"
import { EVERYTHING, SEED } from "./effort.ts"
import { valuesOf } from "./generated-values.ts"
import { suiteTally } from "./suite-tally.ts"
import type { Violation } from "./tally.ts"

const client = sharedClient()
beforeAll(() => installBase(client, AbortSignal.timeout(60_000)))
const tally = suiteTally("generated", "Generated changes of every field of every spec, at random times")

/** Number of changes of each kind, after each of which the spec is restored. */
const CHANGES = EVERYTHING ? 300 : 12
/** Maximum delay between two changes in milliseconds. The operator is often still busy with the last one. */
const GAP_MS = 60

interface Tended extends ApiObject {
  spec: Record<string, unknown>
  status?: { observedGeneration?: number; conditions?: Condition[] }
}

interface Subject {
  kind: KindDefinition
  spec: (fixture: Fixture) => Record<string, unknown>
}

const SUBJECTS: Record<string, Subject> = {
  job: { kind: JOB, spec: () => ({ image: "busybox" }) },
  cronjob: {
    kind: CRON_JOB,
    spec: () => ({ schedule: "0 0 1 1 *", jobDefinition: { image: "busybox" } }),
  },
  "API key": {
    kind: API_KEY,
    spec: () => {
      const { keyId, tokenHash } = makeApiKey()
      return { role: "viewer", keyId, tokenHash }
    },
  },
  connection: {
    kind: CONNECTION,
    spec: () => ({ type: "aws", credentialsSecretRef: { name: "subject" } }),
  },
  organization: { kind: ORGANIZATION, spec: () => ({ displayName: "An organization" }) },
  // Created by `addProject`.
  project: { kind: PROJECT, spec: () => ({}) },
}

/** Returns merge patches that remove or replace one field. */
function changesOf({ spec: { properties } }: KindDefinition): fc.Arbitrary<Record<string, unknown>> {
  const fields = Object.entries(properties).map(([name, schema]) =>
    fc.oneof({ arbitrary: valuesOf(schema), weight: 5 }, { arbitrary: fc.constant(null), weight: 1 }).map((value) => ({
      [name]: value,
    })),
  )
  return fc.oneof(...fields)
}

/** Conditions that are absent until they are true for the first time, and False afterwards. */
const KEPT_AS_FALSE: readonly string[] = [ApiKeyCondition.Stalled, ApiKeyCondition.Expired]

/** Returns an object's state without times: it is equal after the spec is restored. */
async function outcomeOf(fixture: Fixture, found: Tended): Promise<unknown> {
  const { items } = await client.list(ROLE_BINDINGS, { namespace: fixture.namespace })
  const bindings = items.map(({ metadata, roleRef, subjects }) => ({ name: metadata.name, roleRef, subjects }))
  bindings.sort((a, b) => (a.name < b.name ? -1 : 1))
  const conditions = (found.status?.conditions ?? [])
    .filter(({ type, status }) => status !== "False" || !KEPT_AS_FALSE.includes(type))
    .map(({ type, status, reason }) => `${type} ${status} ${reason}`)
  return { conditions: conditions.sort(), bindings }
}

/** Reasons with which an object that refers to a missing object settles. */
const WAITS: readonly string[] = [ConnectionReason.SecretNotFound, ConnectionReason.NoProject]

/** Expects that the operator has observed the current spec and finished with it. */
function expectSettled({ metadata, status }: Tended): void {
  expect(status?.observedGeneration).toBe(metadata.generation)
  const reconciling = status?.conditions?.find(({ type }) => type === "Reconciling")
  if (reconciling?.status === "True") expect(WAITS).toContain(reconciling.reason)
}

describe("random changes of specs at random times", () => {
  test.each(Object.entries(SUBJECTS))(
    "%s settles after each change, and returns to its first state when the spec is restored",
    async (name, subject) => {
      const fixture = await Fixture.open(client, openSim)
      // An operator of one namespace handles only the organization of that namespace's project.
      await fixture.addProject(subject.kind === ORGANIZATION ? fixture.namespace : undefined)
      const key = Buffer.from("AKIAEXAMPLE").toString("base64")
      const secret = Buffer.from(`secret-${fixture.id}`).toString("base64")
      fixture.provider.issue("account", `secret-${fixture.id}`)
      const data = { accessKeyId: key, secretAccessKey: secret }
      const metadata = { name: "subject", namespace: fixture.namespace }
      await client.create(SECRETS, { metadata, type: "berth.dev/connection", data })
      const operator = await fixture.startOperator(new Plan())
      const violations = await runChanges(fixture, subject, name).finally(() => fixture.close())
      expect(violations, `seed ${SEED}`).toEqual([])
      expect(operator.life.dead).toBe(false)
    },
    1_200_000,
  )
})

async function runChanges(fixture: Fixture, subject: Subject, name: string): Promise<Violation[]> {
  const resource = declareResource<Tended>(subject.kind)
  const ref = resource.namespaced ? { namespace: fixture.namespace, name: "subject" } : { name: fixture.namespace }
  if (subject.kind !== PROJECT) {
    const metadata = { ...ref, labels: { "test.berth.dev/fixture": fixture.id } }
    await client.create(resource, { metadata, spec: subject.spec(fixture) } as Tended)
  }
  const settled = () =>
    eventually(async () => {
      await fixture.agents(() => Promise.resolve())
      const found = await client.get(resource, ref)
      expectSettled(found)
      return found
    }, 180)
  const first = await settled()
  const before = await outcomeOf(fixture, first)
  let refused = 0
  for (const [spec, gap] of fc.sample(fc.tuple(changesOf(subject.kind), fc.nat(GAP_MS)), {
    seed: SEED,
    numRuns: CHANGES,
  })) {
    if (!(await change(ref, resource, spec))) refused++
    await new Promise((resolve) => setTimeout(resolve, gap))
  }
  const isStuck = await settled().then(
    () => false,
    () => true,
  )
  const violations: Violation[] = isStuck ? ["stuck"] : []
  if (!(await isSetBack(fixture, { first, before, resource, ref }))) violations.push("lost")
  if (!resource.namespaced) await ifFound(client.delete(resource, ref))
  tally.count({ faults: `${name}: changes, ${refused} of them refused` }, violations, CHANGES)
  return violations
}

/** Returns true if the API server accepted the change. It rejects changes that violate a rule. */
async function change(
  ref: { name: string; namespace?: string },
  resource: ReturnType<typeof declareResource<Tended>>,
  spec: Record<string, unknown>,
): Promise<boolean> {
  try {
    await client.patch(resource, ref, { merge: { spec } })
    return true
  } catch (error) {
    if (error instanceof KubeError && error.reason === "Invalid") return false
    throw error
  }
}

interface Original {
  first: Tended
  before: unknown
  resource: ReturnType<typeof declareResource<Tended>>
  ref: { name: string; namespace?: string }
}

/**
 * Restores the spec and returns true if it is restored. Irreversible changes such as a cancellation remain, which is
 * fine.
 */
async function isSetBack(fixture: Fixture, { first, before, resource, ref }: Original): Promise<boolean> {
  const changed = await ifFound(client.get(resource, ref))
  if (changed === undefined) return false
  const gone = Object.keys(changed.spec).filter((field) => !(field in first.spec))
  const spec = { ...first.spec, ...Object.fromEntries(gone.map((field) => [field, null])) }
  if (!(await change(ref, resource, spec))) return changed.spec["cancelled"] === true
  return eventually(async () => {
    const found = await client.get(resource, ref)
    expectSettled(found)
    expect(await outcomeOf(fixture, found)).toEqual(before)
  }, 180).then(
    () => true,
    () => false,
  )
}
