import { newestFirst } from "../apis/creation-times.ts"
import type { KubeObject, Stored } from "../apis/meta.ts"
import { fromMetadataName } from "../apis/names.ts"
import { choice, type QueryValues } from "../http/query.ts"

const FIELDS = ["name", "created_at"] as const
const ORDERS = ["asc", "desc"] as const

/** Parameters that sort a list of keys or connections. */
export const SORTING = { sort_by: choice(FIELDS, "created_at"), sort_order: choice(ORDERS, "desc") }
export type Sorting = QueryValues<typeof SORTING>

/** Sorts the objects. Names are compared by character code, so that the order does not depend on a locale. */
export function sorted<T extends Pick<Stored<KubeObject>, "metadata">>(
  objects: readonly T[],
  { sort_by, sort_order }: Sorting,
): T[] {
  const descending = objects.toSorted(sort_by === "name" ? lastNameFirst : newestFirst)
  return sort_order === "desc" ? descending : descending.reverse()
}

function lastNameFirst(a: Pick<KubeObject, "metadata">, b: Pick<KubeObject, "metadata">): number {
  return fromMetadataName(a.metadata.name) > fromMetadataName(b.metadata.name) ? -1 : 1
}
