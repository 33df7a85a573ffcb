import Type, { type Static, type TSchema } from "typebox"
import { LIMITS } from "../apis/field-limits.ts"
import { AWAITED_OUTCOMES, type Prerequisite, type PrerequisiteName } from "../apis/prerequisites.ts"
import { COMPONENT, StringEnum } from "../apis/schema.ts"
import type { Orderable } from "../order/prerequisites.ts"
import { awaitedBy } from "../order/waiting.ts"
import { nullable } from "./nullable.ts"

/** Part of the records of jobs and arrays: what must end first. */

/** Name of a job or an array in a record: one of them is null. */
export const NAME_FIELDS = {
  job: nullable<string>("string", "Name of the job. Null: it is an array."),
  array: nullable<string>("string", "Name of the array. Null: it is a job."),
}
const AWAITED = StringEnum(AWAITED_OUTCOMES, { description: "Outcome that is waited for. ended: any." })

/** Prerequisite in a record. */
const PrerequisiteRecordSchema = Type.Object(
  { ...NAME_FIELDS, outcome: AWAITED },
  { [COMPONENT]: "PrerequisiteRecord" },
)

/** Prerequisite in a record that has not ended yet. */
const AwaitedRecordSchema = Type.Object(
  {
    ...NAME_FIELDS,
    id: nullable<string>("string", "Id of the job or array. Null: Berth has not seen it yet."),
    outcome: AWAITED,
  },
  { [COMPONENT]: "AwaitedRecord" },
)

/** Declares a list, or null. */
function listOrNull<Item extends TSchema>(items: Item, description: string) {
  return Type.Unsafe<Static<Item>[] | null>({
    type: ["array", "null"],
    items,
    maxItems: LIMITS.prerequisites,
    description,
  })
}

/** Fields of a record about the jobs and arrays that must end first. */
export const ORDER_FIELDS = {
  after: listOrNull(PrerequisiteRecordSchema, "Jobs and arrays that must end first. Null: none."),
  waits_for: listOrNull(AwaitedRecordSchema, "Those of them that have not ended yet, while it is queued. Null: none."),
}

/** Returns the name of a prerequisite, as it is in a record. */
export function nameFields({ job = null, array = null }: Partial<Record<keyof PrerequisiteName, string | null>>) {
  return { job, array }
}

/** Returns the fields of a record about the jobs and arrays that must end first. @param name that of the object */
export function orderFields(name: PrerequisiteName, object: Orderable) {
  const { after = [] } = object.spec
  const awaited = awaitedBy(name, object)
  return {
    after: after.length === 0 ? null : after.map(toPrerequisiteRecord),
    waits_for:
      awaited.length === 0
        ? null
        : awaited.map(({ prerequisite, uid = null }) => ({ ...toPrerequisiteRecord(prerequisite), id: uid })),
  }
}

function toPrerequisiteRecord({ outcome = "succeeded", ...name }: Prerequisite) {
  return { ...nameFields(name), outcome }
}
