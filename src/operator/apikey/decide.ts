import { isDeepStrictEqual } from "node:util"
import {
  API_KEY_FINALIZER,
  ApiKeyCondition,
  type ApiKeyStatus,
  isExpired,
  type StoredApiKey,
} from "../../core/apis/apikey.ts"
import { secondsBetween } from "../../core/apis/clock.ts"
import {
  type ConditionCause,
  changedCondition,
  condition,
  conditionOnceTrue,
  setConditions,
} from "../../core/apis/conditions.ts"
import { ANNOTATIONS, keyOf, LABELS, type ObjectMeta } from "../../core/apis/meta.ts"
import {
  clusterRoleName,
  IDENTITIES_NAMESPACE,
  machineUserName,
  type ServiceAccount,
} from "../../core/identity/machine-users.ts"
import { givesTheSame, RBAC_GROUP, type RoleBinding } from "../../core/identity/role-bindings.ts"
import type { EventNote } from "../../core/kube/events.ts"
import { PROJECT_LIMIT } from "../../core/quota/project-limits.ts"
import type { Decision } from "../../core/runtime/reconcile-object.ts"

export interface ApiKeyObservation {
  /** The ServiceAccount with the machine user's name. Another client may have created it. */
  user: ServiceAccount | undefined
  /**
   * Bindings of this key, and the one with the wanted name, in the key's namespace. Another client may have created
   * that one.
   */
  bindings: readonly RoleBinding[]
  /** Limit of the project that keeps the key from working. */
  overLimit?: string
}

export type ApiKeyAction =
  | { do: "addFinalizer" }
  | { do: "createUser"; user: ServiceAccount }
  | { do: "deleteUser"; user: ServiceAccount }
  | { do: "createBinding"; binding: RoleBinding }
  | { do: "deleteBinding"; binding: RoleBinding }
  | { do: "dropFinalizer" }

export interface ApiKeyDecision extends Decision<ApiKeyStatus, ApiKeyAction> {
  actions: ApiKeyAction[]
}

/** Delay before checking again whether a taken name is free, seconds. */
const NAME_TAKEN_SECONDS = 60

/** Delay before checking again whether the project has room for the key, seconds. */
const OVER_LIMIT_SECONDS = 120

export function decide(key: StoredApiKey, observed: ApiKeyObservation, now: Date): ApiKeyDecision {
  if (key.metadata.deletionTimestamp !== undefined) return { actions: removal(key, observed) }
  if (observed.overLimit !== undefined) {
    const status = changedStatus(key, { is: "overLimit", message: observed.overLimit }, now)
    return { ...status, actions: [], requeueAfter: OVER_LIMIT_SECONDS }
  }
  const taken = takenName(key, observed)
  if (taken !== undefined) {
    const status = changedStatus(key, { is: "nameTaken", name: taken }, now)
    return { ...status, actions: [], requeueAfter: NAME_TAKEN_SECONDS }
  }
  const hasExpired = isExpired(key, now)
  const needed = [...finalizer(key), ...machineUser(key, observed), ...binding(key, observed, hasExpired)]
  const situation: Situation = hasExpired ? { is: "expired" } : { is: needed.length > 0 ? "binding" : "bound" }
  const decision = { ...changedStatus(key, situation, now), actions: needed }
  const { expiresAt } = key.spec
  if (hasExpired || expiresAt === undefined) return decision
  return { ...decision, requeueAfter: secondsBetween(now, expiresAt) }
}

/** Deletes the rights first, then the user. Objects of others stay. */
function removal(key: StoredApiKey, { user, bindings }: ApiKeyObservation): ApiKeyAction[] {
  const actions: ApiKeyAction[] = bindings
    .filter((found) => isMadeFor(found, key))
    .map((found) => ({ do: "deleteBinding", binding: found }))
  if (user !== undefined && isMadeFor(user, key)) actions.push({ do: "deleteUser", user })
  if (key.metadata.finalizers?.includes(API_KEY_FINALIZER)) actions.push({ do: "dropFinalizer" })
  return actions
}

/** Returns an object that has a needed name but was not made for this key. It is never adopted, whatever its rights. */
function takenName(key: StoredApiKey, { user, bindings }: ApiKeyObservation): string | undefined {
  if (user !== undefined && !isMadeFor(user, key)) return `ServiceAccount ${user.metadata.name}`
  const foreign = bindings.find((found) => !isMadeFor(found, key))
  return foreign === undefined ? undefined : `RoleBinding ${foreign.metadata.name}`
}

function finalizer({ metadata }: StoredApiKey): ApiKeyAction[] {
  return metadata.finalizers?.includes(API_KEY_FINALIZER) ? [] : [{ do: "addFinalizer" }]
}

function machineUser(key: StoredApiKey, { user }: ApiKeyObservation): ApiKeyAction[] {
  return user === undefined ? [{ do: "createUser", user: buildMachineUser(key) }] : []
}

/**
 * Returns the actions for the binding of the key's present role. The binding of a former role is deleted after the new
 * one exists.
 */
function binding(key: StoredApiKey, { bindings }: ApiKeyObservation, hasExpired: boolean): ApiKeyAction[] {
  const wanted = buildBinding(key)
  const toDelete = (found: RoleBinding): ApiKeyAction => ({ do: "deleteBinding", binding: found })
  if (hasExpired) return bindings.map(toDelete)
  const same = bindings.find(({ metadata }) => metadata.name === wanted.metadata.name)
  const others = bindings.filter((found) => found !== same).map(toDelete)
  if (same !== undefined && givesTheSame(same, wanted)) return others
  const actions: ApiKeyAction[] = [{ do: "createBinding", binding: wanted }, ...others]
  return same === undefined ? actions : [toDelete(same), ...actions]
}

/** Returns the machine user of a key. It gets no token: no program logs in as it, the façade impersonates it. */
export function buildMachineUser(key: StoredApiKey): ServiceAccount {
  const name = machineUserName(key.metadata.uid)
  return { metadata: { name, namespace: IDENTITIES_NAMESPACE, ...mark(key) }, automountServiceAccountToken: false }
}

/**
 * Returns the binding of a key's machine user to its role in the key's namespace. Its name contains the role, because
 * the role of a binding can't be changed. The new binding must exist before the old one is deleted.
 */
export function buildBinding(key: StoredApiKey): RoleBinding {
  const { metadata, spec } = key
  const user = machineUserName(metadata.uid)
  return {
    metadata: { name: `berth-${user}-${spec.role}`, namespace: metadata.namespace ?? "", ...mark(key) },
    roleRef: { apiGroup: RBAC_GROUP, kind: "ClusterRole", name: clusterRoleName(spec.role) },
    subjects: [{ kind: "ServiceAccount", name: user, namespace: IDENTITIES_NAMESPACE }],
  }
}

/** Returns true if an object was made for this key. A matching name alone proves nothing. */
export function isMadeFor(object: { metadata: ObjectMeta }, key: StoredApiKey): boolean {
  return object.metadata.labels?.[LABELS.apiKeyUid] === key.metadata.uid
}

function mark(key: StoredApiKey): Pick<ObjectMeta, "labels" | "annotations"> {
  return { labels: { [LABELS.apiKeyUid]: key.metadata.uid }, annotations: { [ANNOTATIONS.apiKey]: keyOf(key) } }
}

/** State of a key, from which its status follows. */
export type Situation =
  | { is: "binding" }
  | { is: "bound" }
  | { is: "expired" }
  | { is: "nameTaken"; name: string }
  | { is: "overLimit"; message: string }

/** Returns the status to write and its events; nothing if the status is the same. */
function changedStatus(
  key: StoredApiKey,
  situation: Situation,
  now: Date,
): { status?: ApiKeyStatus; events?: EventNote[] } {
  const status = nextStatus(key, situation, now)
  if (isDeepStrictEqual(status, key.status)) return {}
  const ready = changedCondition(key.status?.conditions, status.conditions, ApiKeyCondition.Ready)
  if (ready === undefined) return { status }
  const type = situation.is === "nameTaken" || situation.is === "overLimit" ? "Warning" : "Normal"
  return { status, events: [{ type, reason: ready.reason, message: ready.message }] }
}

/**
 * Returns the status of a key. For kstatus (Helm, Flux, Argo CD) it is Reconciling until its machine user has its rights, then
 * Ready. It is Stalled when a user must change something.
 */
export function nextStatus(key: StoredApiKey, situation: Situation, now: Date): ApiKeyStatus {
  const before = key.status?.conditions
  const { generation, uid } = key.metadata
  const cause = causeOf(key, situation)
  const isStalled = ["expired", "nameTaken", "overLimit"].includes(situation.is)
  const updates = [
    condition(ApiKeyCondition.Ready, situation.is === "bound", cause),
    condition(ApiKeyCondition.Reconciling, situation.is === "binding", cause),
    conditionOnceTrue(ApiKeyCondition.Stalled, isStalled, cause),
    conditionOnceTrue(ApiKeyCondition.Expired, situation.is === "expired", cause),
  ]
  const conditions = setConditions(before, updates, generation, now)
  return { conditions, machineUser: machineUserName(uid), observedGeneration: generation }
}

function causeOf({ metadata, spec }: StoredApiKey, situation: Situation): ConditionCause {
  const user = machineUserName(metadata.uid)
  switch (situation.is) {
    case "binding":
      return { reason: "Binding", message: `creating ${user} and its binding to the role ${spec.role}` }
    case "bound":
      return { reason: "Bound", message: `acts as ServiceAccount ${IDENTITIES_NAMESPACE}/${user}, role ${spec.role}` }
    case "expired":
      return { reason: "Expired", message: `expired at ${spec.expiresAt}: delete it and create a new one` }
    case "overLimit":
      return { reason: PROJECT_LIMIT, message: situation.message }
    case "nameTaken": {
      const message = `${situation.name} was not created for this key, so Berth does not use it: delete it`
      return { reason: "NameTaken", message }
    }
  }
}
