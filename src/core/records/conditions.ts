import Type, { type Static } from "typebox"
import { COMPONENT, type Condition, StringEnum } from "../apis/schema.ts"
import { isTrouble } from "../apis/trouble.ts"

const fields = {
  type: Type.String({ description: "Condition, such as Ready." }),
  status: StringEnum(["True", "False", "Unknown"]),
  reason: Type.String({ description: "Cause of the status, one CamelCase word." }),
  message: Type.Optional(
    Type.String({
      description: "Explanation for people. Of a connection only for admins: it may name parts of the account.",
    }),
  ),
}
const transitionTime = Type.String({ description: "Time of the last change of the status." })

const ConditionRecordSchema = Type.Object(
  { ...fields, last_transition_time: transitionTime },
  { [COMPONENT]: "Condition" },
)
export type ConditionRecord = Static<typeof ConditionRecordSchema>

/** Condition in the records of accounts, which are in camelCase. */
const AccountConditionSchema = Type.Object(
  { ...fields, lastTransitionTime: transitionTime },
  { [COMPONENT]: "AccountCondition" },
)
export type AccountConditionRecord = Static<typeof AccountConditionSchema>

/** Description of `ownTroubles`. */
export const OWN_TROUBLES = "Conditions that are not as they should be. Absent: there are none."

/** Declares the conditions of a record. */
export function conditionsField(
  description = "State of the object, as kubectl shows it. Absent before Berth has looked at it.",
) {
  return Type.Optional(Type.Array(ConditionRecordSchema, { description }))
}

/** Declares the conditions in a record of an account. */
export function accountConditionsField() {
  return Type.Optional(Type.Array(AccountConditionSchema, { description: OWN_TROUBLES }))
}

/** Declares the conditions in a PATCH: the copy of a client is ignored. */
export function ignoredConditions() {
  return Type.Optional(Type.Unsafe<unknown>({ type: ["array", "null"], items: {}, description: "Ignored." }))
}

/** An object's conditions. */
interface WithConditions {
  status?: { conditions?: readonly Condition[] }
}

/** Returns the field `conditions` of a record, with the object's own words. */
export function toConditionRecords({ status }: WithConditions): { conditions?: ConditionRecord[] } {
  return status?.conditions === undefined ? {} : { conditions: status.conditions.map(recordOf) }
}

/**
 * Returns the field `conditions` with those that have a sentence of their own about a trouble. Lists of jobs are long, and
 * the contract lists the fields of keys, organizations and projects: without a trouble a record has no others.
 */
export function ownTroubles(object: WithConditions, said: string | null = null): { conditions?: ConditionRecord[] } {
  const own = troublesIn(object, said)
  return own.length === 0 ? {} : { conditions: own.map(recordOf) }
}

/** Returns the field `conditions` of an account's record, as `ownTroubles`. */
export function accountTroubles(account: WithConditions): { conditions?: AccountConditionRecord[] } {
  const own = troublesIn(account)
  if (own.length === 0) return {}
  return { conditions: own.map(({ observedGeneration: _, ...condition }) => condition) }
}

function troublesIn({ status }: WithConditions, said: string | null = null): Condition[] {
  return (status?.conditions ?? []).filter(
    (condition) => isTrouble(condition) && condition.message !== "" && condition.message !== said,
  )
}

function recordOf({ type, status, reason, message, lastTransitionTime }: Condition): ConditionRecord {
  return { type, status, reason, message, last_transition_time: lastTransitionTime }
}
