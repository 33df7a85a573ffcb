import { creationBound, creationKey, parseMicroseconds } from "../../../core/apis/creation-times.ts"
import { ARRAY_PHASES, type StoredJobArray } from "../../../core/apis/jobarray.ts"
import { filters, prerequisite } from "../../filters.ts"
import type { QueryValues } from "../../http/query.ts"
import { arrayStatus, hasEnded } from "./translate.ts"

/** Parameters that select arrays. Tags and labels are those of their jobs. */
export const ARRAY_FILTERS = { ...filters("Arrays", ARRAY_PHASES), after: prerequisite("Arrays") }
export type ArrayFilter = QueryValues<typeof ARRAY_FILTERS>

/** True if an array matches the parameters of a list, except `after`, for which there is an index. Pure. */
export function isSelected(array: StoredJobArray, filter: ArrayFilter): boolean {
  const { status, tag, label, name_prefix = "", name_contains = "" } = filter
  const { name } = array.metadata
  const { tags = [], labels = {} } = array.spec.jobDefinition
  return (
    (status === undefined || arrayStatus(array) === status) &&
    tag.every((one) => tags.includes(one)) &&
    label.every(({ key, value }) => labels[key] === value) &&
    name.startsWith(name_prefix) &&
    name.includes(name_contains) &&
    isCreatedWithin(array, filter) &&
    isEndedWithin(array, filter)
  )
}

function isCreatedWithin(array: StoredJobArray, { created_after, created_before }: ArrayFilter): boolean {
  const key = creationKey(array)
  return (
    (created_after === undefined || key >= creationBound(created_after)) &&
    (created_before === undefined || key < creationBound(created_before))
  )
}

/** An array that has not ended is in no range of ends. */
function isEndedWithin(array: StoredJobArray, { ended_after, ended_before }: ArrayFilter): boolean {
  if ((ended_after ?? ended_before) === undefined) return true
  const time = hasEnded(array) ? array.status?.completionTime : undefined
  if (time === undefined) return false
  const end = parseMicroseconds(time)
  return (
    (ended_after === undefined || end >= parseMicroseconds(ended_after)) &&
    (ended_before === undefined || end < parseMicroseconds(ended_before))
  )
}
