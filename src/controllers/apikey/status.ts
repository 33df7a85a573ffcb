import { ApiKeyCondition, type ApiKeyStatus, type StoredApiKey } from "../../apis/apikey.ts"
import { type ConditionUpdate, findCondition, setCondition } from "../../apis/conditions.ts"
import type { Condition } from "../../apis/schema.ts"
import { IDENTITIES_NAMESPACE, machineUserName } from "../../identity/machine-users.ts"

/** How a key stands. */
export type Situation = { is: "binding" } | { is: "bound" } | { is: "expired" } | { is: "nameTaken"; name: string }

interface Why {
  reason: string
  message: string
}

/**
 * What is told of a key. For kstatus (Helm, Flux, Argo CD): Reconciling until its machine user has its rights, then
 * Ready; Stalled when only somebody's act can make it work. Pure.
 */
export function statusOf(key: StoredApiKey, situation: Situation, now: Date): ApiKeyStatus {
  const before = key.status?.conditions
  const { generation, uid } = key.metadata
  const why = whyOf(key, situation)
  const isStalled = situation.is === "expired" || situation.is === "nameTaken"
  const updates = [
    condition(ApiKeyCondition.Ready, situation.is === "bound", why),
    condition(ApiKeyCondition.Reconciling, situation.is === "binding", why),
    ...optional(ApiKeyCondition.Stalled, isStalled, why, before),
    ...optional(ApiKeyCondition.Expired, situation.is === "expired", why, before),
  ]
  const conditions = updates.reduce<Condition[]>(
    (all, update) => setCondition(all, update, generation, now),
    [...(before ?? [])],
  )
  return { conditions, machineUser: machineUserName(uid), observedGeneration: generation }
}

function whyOf({ metadata, spec }: StoredApiKey, situation: Situation): Why {
  const user = machineUserName(metadata.uid)
  switch (situation.is) {
    case "binding":
      return { reason: "Binding", message: `${user} is being given the role ${spec.role}` }
    case "bound":
      return { reason: "Bound", message: `acts as ServiceAccount ${IDENTITIES_NAMESPACE}/${user}, role ${spec.role}` }
    case "expired":
      return { reason: "Expired", message: `expired at ${spec.expiresAt}: delete it and make a new one` }
    case "nameTaken": {
      const message = `${situation.name} exists and was not made for this key, so it is not used: delete it`
      return { reason: "NameTaken", message }
    }
  }
}

function condition(type: string, isTrue: boolean, why: Why): ConditionUpdate {
  return { type, status: isTrue ? "True" : "False", ...why }
}

/** A condition that is only there when it is true, or once was. */
function optional(
  type: string,
  isTrue: boolean,
  why: Why,
  before: readonly Condition[] | undefined,
): ConditionUpdate[] {
  return isTrue || findCondition(before, type) !== undefined ? [condition(type, isTrue, why)] : []
}
