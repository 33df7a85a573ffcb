import type { KubeObject, Stored } from "../apis/meta.ts"
import { fromMetadataName } from "../apis/names.ts"
import type { Query } from "../http/query.ts"
import { newestFirst } from "./created-at.ts"

export const SORT_FIELDS = ["name", "created_at"] as const
export const SORT_ORDERS = ["asc", "desc"] as const

/** How a list of keys or connections is sorted. */
export interface Sorting {
  by: (typeof SORT_FIELDS)[number]
  order: (typeof SORT_ORDERS)[number]
}

/** The parameters `sort_by` (default created_at) and `sort_order` (default desc). */
export function sortingOf(query: Query): Sorting {
  return {
    by: query.choice("sort_by", SORT_FIELDS) ?? "created_at",
    order: query.choice("sort_order", SORT_ORDERS) ?? "desc",
  }
}

/** The objects in that order; names go by their characters' codes, so that every reader's order is the same. */
export function sorted<T extends Pick<Stored<KubeObject>, "metadata">>(
  objects: readonly T[],
  { by, order }: Sorting,
): T[] {
  const descending = objects.toSorted(by === "name" ? lastNameFirst : newestFirst)
  return order === "desc" ? descending : descending.reverse()
}

function lastNameFirst(a: Pick<KubeObject, "metadata">, b: Pick<KubeObject, "metadata">): number {
  return fromMetadataName(a.metadata.name) > fromMetadataName(b.metadata.name) ? -1 : 1
}
