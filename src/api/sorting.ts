import { newestFirst } from "../core/apis/creation-times.ts"
import type { KubeObject, Stored } from "../core/apis/meta.ts"
import { fromMetadataName } from "../core/apis/names.ts"
import type { PageOrder } from "../core/kube/page-index.ts"
import { choice, type QueryValues } from "./http/query.ts"

const ORDERS = ["asc", "desc"] as const

/** Declares the parameters that sort a list, by default by `created_at`, newest first. */
export function sorting<const Field extends string>(fields: readonly ("created_at" | Field)[], description?: string) {
  const sort_by = choice<"created_at" | Field, "created_at">(fields, "created_at")
  return {
    sort_by: description === undefined ? sort_by : { ...sort_by, description },
    sort_order: choice(ORDERS, "desc"),
  }
}

/** Parameters that sort a list by what each kind has. */
export const SORTING = sorting(["name", "created_at"])
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

/** Returns the order of a project's pages, as `sorted` has it. @param value of the other fields; default: the name */
export function pageOrder<Field extends string>(
  { sort_by, sort_order }: { sort_by: Field; sort_order: Sorting["sort_order"] },
  value: PageOrder["value"] = ({ key }) => nameIn(key),
): PageOrder | "lowestKeyFirst" | undefined {
  const isAscending = sort_order === "asc"
  if (sort_by !== "created_at") return { value, isAscending }
  return isAscending ? "lowestKeyFirst" : undefined
}

/** Returns the name in REST of the object with this key of a store, `namespace/name`. */
export function nameIn(key: string): string {
  const name = key.slice(key.indexOf("/") + 1)
  // Each coded name has a dot. Most have none, and a list may ask for 100,000.
  return name.includes(".") ? fromMetadataName(name) : name
}
