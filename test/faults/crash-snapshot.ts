import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { ANNOTATIONS, LABELS } from "../../src/core/apis/meta.ts"
import { IDENTITIES_NAMESPACE, SERVICE_ACCOUNTS } from "../../src/core/identity/machine-users.ts"
import { ROLE_BINDINGS } from "../../src/core/identity/role-bindings.ts"
import type { KubeEvent } from "../../src/core/kube/core.ts"
import { SECRETS } from "../../src/core/kube/core.ts"
import { events } from "../../src/core/kube/events.ts"
import type { ApiObject, Resource } from "../../src/core/kube/resource.ts"
import { API_KEYS, CONNECTIONS, CRON_JOBS, JOB_ARRAYS, JOBS, LAUNCHES, MACHINES } from "../../src/core/resources.ts"
import type { Fixture } from "./crash-fixture.ts"

/** Content of a fixture without the values that differ from run to run: ids, times, versions. */
export interface Snapshot {
  /** Objects by kind and name. */
  objects: Record<string, unknown>
  /** Launches whose VMs exist. */
  vms: string[]
  /** Number of containers that were started. */
  starts: number
}

/** Fields that differ in each run and have no meaning of their own. */
const CHANCE = new Set([
  // Some clouds report it late, and for a deleted VM it is not requested.
  "ipAddress",
  // A minute soon after the start of the fixture.
  "schedule",
  "observedSchedule",
  // The rest of a job's timeout.
  "lifetimeSeconds",
  "timeoutSeconds",
  "uid",
  "resourceVersion",
  "creationTimestamp",
  "managedFields",
  "sequence",
  // It contains the name of the Launch.
  "specDigest",
  "data",
  "tokenHash",
  // They depend on the time of day.
  ANNOTATIONS.counted,
  LABELS.released,
])

/** Patterns of random parts in strings, with their replacements. */
const NAMES: readonly [RegExp, string][] = [
  [/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "<uid>"],
  [/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, "<time>"],
  [/\d{8}t\d{6}z/g, "<tick>"],
  // The `schedule` in the text of conditions.
  [/"\d{1,2} \* \* \* \*"/g, "<schedule>"],
  [/(crash|account)-[0-9a-f]{8}/g, "$1"],
  [/\/\d+$/g, "/<version>"],
  [/\bi-[0-9a-f]{17}\b|\bvm-\d+\b|\bkey-[0-9a-f]{8}\b|\bcompute[a-z]+-[a-z]\d{10}\b/g, "<id>"],
  [/\bberth1\.\S+/g, "<sealed>"],
  [/\b\d{1,3}(\.\d{1,3}){3}\b/g, "<address>"],
  [/\b[0-9a-f]{8}\b/g, "<id>"],
]

/** Returns the value without random parts: equal for all runs of a scenario with the same end. */
export function normalized(value: unknown): unknown {
  if (typeof value === "string") return NAMES.reduce((text, [pattern, name]) => text.replaceAll(pattern, name), value)
  if (Array.isArray(value)) return sorted(value.map(normalized))
  if (typeof value !== "object" || value === null) return value
  const entries = Object.entries(value).filter(([key]) => !CHANCE.has(key))
  return Object.fromEntries(entries.map(([key, each]) => [normalized(key), normalized(each)]))
}

/** Returns conditions and similar lists sorted, because their order has no meaning. */
function sorted(values: unknown[]): unknown[] {
  return values
    .map((value) => [JSON.stringify(value), value] as const)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([, value]) => value)
}

/** Returns the current content of a fixture. */
export async function snapshotOf(fixture: Fixture): Promise<Snapshot> {
  const { namespace, systemNamespace } = fixture
  const here = await Promise.all([
    listed(fixture, JOBS, namespace),
    listed(fixture, CRON_JOBS, namespace),
    listed(fixture, JOB_ARRAYS, namespace),
    listed(fixture, MACHINES, namespace),
    listed(fixture, API_KEYS, namespace),
    listed(fixture, CONNECTIONS, namespace),
    listed(fixture, SECRETS, namespace),
    listed(fixture, ROLE_BINDINGS, namespace),
    launchesIn(fixture),
    listed(fixture, SECRETS, systemNamespace),
    machineUsers(fixture),
  ])
  const objects = Object.fromEntries(here.flat().sort(([a], [b]) => (a < b ? -1 : 1)))
  const vms = (await fixture.alive()).map((name) => String(normalized(name)))
  return { objects, vms, starts: fixture.started.length }
}

type Entry = [key: string, object: unknown]

async function listed<T extends ApiObject>(
  fixture: Fixture,
  resource: Resource<T>,
  namespace: string,
): Promise<Entry[]> {
  const { items } = await fixture.client.list(resource, { namespace })
  return items.map((object) => entryOf(resource.kind, object))
}

/** Returns the Launches by the names of their jobs. Their own names differ only by the uids of jobs. */
async function launchesIn(fixture: Fixture): Promise<Entry[]> {
  const launches = await fixture.launches()
  return launches.map((launch) => {
    const { job, number } = launch.spec
    return entryOf(LAUNCHES.kind, withImageInStatus(launch), `${job.name}-${number}`)
  })
}

/** Returns a Launch with its image in the status. An operator that knows the image before writes it into the spec. */
function withImageInStatus(launch: StoredLaunch): StoredLaunch {
  const { imageId, ...spec } = launch.spec
  return imageId === undefined ? launch : { ...launch, spec, status: { ...launch.status, imageId } }
}

function entryOf(kind: string, object: ApiObject, name = object.metadata.name): Entry {
  const key = `${kind} ${String(normalized(name))}`
  return [key, normalized(object)]
}

/** Returns the machine users of the fixture's keys. */
async function machineUsers({ client, namespace }: Fixture): Promise<Entry[]> {
  const { items } = await client.list(SERVICE_ACCOUNTS, {
    namespace: IDENTITIES_NAMESPACE,
    labelSelector: LABELS.apiKeyUid,
  })
  const own = items.filter(({ metadata }) =>
    Object.values(metadata.annotations ?? {}).some((each) => each.startsWith(`${namespace}/`)),
  )
  return own.map((user) => entryOf("ServiceAccount", user))
}

/** Returns the kinds of objects and reasons of all events, without repetition. */
export async function reasonsOf({ client, namespace, systemNamespace }: Fixture): Promise<Set<string>> {
  const lists = [namespace, systemNamespace].map((each) => client.list<KubeEvent>(events, { namespace: each }))
  const all = (await Promise.all(lists)).flatMap(({ items }) => items)
  return new Set(all.map(({ involvedObject, reason }) => `${involvedObject.kind} ${reason}`))
}
