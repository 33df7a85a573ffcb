import { isDeepStrictEqual } from "node:util"
import { API_KEY_FINALIZER, type ApiKeyStatus, isExpired, type StoredApiKey } from "../../apis/apikey.ts"
import { secondsBetween } from "../../apis/clock.ts"
import type { ServiceAccount } from "../../identity/machine-users.ts"
import { givesTheSame, type RoleBinding } from "../../identity/role-bindings.ts"
import { bindingOf, isMadeFor, machineUserOf } from "./objects.ts"
import { type Situation, statusOf } from "./status.ts"

/** What there is of a key's machine user. */
export interface ApiKeyObservation {
  /** The ServiceAccount of the machine user's name, whoever made it. */
  user: ServiceAccount | undefined
  /** Bindings in the key's namespace: those made for this key, and the one of the wanted one's name, whoever made it. */
  bindings: readonly RoleBinding[]
}

export type ApiKeyAction =
  | { do: "addFinalizer" }
  | { do: "createUser"; user: ServiceAccount }
  | { do: "deleteUser"; user: ServiceAccount }
  | { do: "createBinding"; binding: RoleBinding }
  | { do: "deleteBinding"; binding: RoleBinding }
  | { do: "dropFinalizer" }

export interface ApiKeyDecision {
  /** To be written before the actions; undefined: as it is. */
  status?: ApiKeyStatus
  /** In order; each one needs those before it. */
  actions: ApiKeyAction[]
  /** Seconds after which time alone changes the decision. */
  requeueAfter?: number
}

/** How often it is looked whether a name that somebody else took is free again, seconds. */
const TAKEN_AGAIN_SECONDS = 60

/** What is to be done about a key. Pure. */
export function decide(key: StoredApiKey, observed: ApiKeyObservation, now: Date): ApiKeyDecision {
  if (key.metadata.deletionTimestamp !== undefined) return { actions: removal(key, observed) }
  const taken = takenName(key, observed)
  if (taken !== undefined) {
    const status = changed(key, { is: "nameTaken", name: taken }, now)
    return { ...status, actions: [], requeueAfter: TAKEN_AGAIN_SECONDS }
  }
  const hasExpired = isExpired(key, now)
  const needed = [...finalizer(key), ...machineUser(key, observed), ...binding(key, observed, hasExpired)]
  const situation: Situation = hasExpired ? { is: "expired" } : { is: needed.length > 0 ? "binding" : "bound" }
  const decision = { ...changed(key, situation, now), actions: needed }
  const { expiresAt } = key.spec
  if (hasExpired || expiresAt === undefined) return decision
  return { ...decision, requeueAfter: secondsBetween(now, expiresAt) }
}

/** First the rights, then the user; what others made stays. */
function removal(key: StoredApiKey, { user, bindings }: ApiKeyObservation): ApiKeyAction[] {
  const actions: ApiKeyAction[] = bindings
    .filter((found) => isMadeFor(found, key))
    .map((found) => ({ do: "deleteBinding", binding: found }))
  if (user !== undefined && isMadeFor(user, key)) actions.push({ do: "deleteUser", user })
  if (key.metadata.finalizers?.includes(API_KEY_FINALIZER)) actions.push({ do: "dropFinalizer" })
  return actions
}

/** An object of a name that is needed but that was not made for this key: never adopted, whatever rights it has. */
function takenName(key: StoredApiKey, { user, bindings }: ApiKeyObservation): string | undefined {
  if (user !== undefined && !isMadeFor(user, key)) return `ServiceAccount ${user.metadata.name}`
  const foreign = bindings.find((found) => !isMadeFor(found, key))
  return foreign === undefined ? undefined : `RoleBinding ${foreign.metadata.name}`
}

function finalizer({ metadata }: StoredApiKey): ApiKeyAction[] {
  return metadata.finalizers?.includes(API_KEY_FINALIZER) ? [] : [{ do: "addFinalizer" }]
}

function machineUser(key: StoredApiKey, { user }: ApiKeyObservation): ApiKeyAction[] {
  return user === undefined ? [{ do: "createUser", user: machineUserOf(key) }] : []
}

/** The binding of the key's present role, and no other: a former role's goes once the new one is there. */
function binding(key: StoredApiKey, { bindings }: ApiKeyObservation, hasExpired: boolean): ApiKeyAction[] {
  const wanted = bindingOf(key)
  const toDelete = (found: RoleBinding): ApiKeyAction => ({ do: "deleteBinding", binding: found })
  if (hasExpired) return bindings.map(toDelete)
  const same = bindings.find(({ metadata }) => metadata.name === wanted.metadata.name)
  const others = bindings.filter((found) => found !== same).map(toDelete)
  if (same !== undefined && givesTheSame(same, wanted)) return others
  const actions: ApiKeyAction[] = [{ do: "createBinding", binding: wanted }, ...others]
  return same === undefined ? actions : [toDelete(same), ...actions]
}

function changed(key: StoredApiKey, situation: Situation, now: Date): { status?: ApiKeyStatus } {
  const status = statusOf(key, situation, now)
  return isDeepStrictEqual(status, key.status) ? {} : { status }
}
