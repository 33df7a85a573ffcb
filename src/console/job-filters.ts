import type { JobRecord } from "../client/client.ts"
import type { paths } from "../client/schema.d.ts"
import type { Zone } from "./format.ts"

type Query = NonNullable<paths["/jobs"]["get"]["parameters"]["query"]>

export const STATUSES = ["queued", "booting", "running", "succeeded", "failed", "cancelled"] as const

/** Periods that end now, by their names in addresses, milliseconds. */
const SPANS = { "1h": 3_600_000, "24h": 86_400_000, "7d": 7 * 86_400_000, "30d": 30 * 86_400_000 } as const
/** Period; `between`: from and until given times. */
export type Span = "" | keyof typeof SPANS | "between"

export const SPAN_TEXTS: readonly [Span, string][] = [
  ["", "any time"],
  ["1h", "last hour"],
  ["24h", "last 24 hours"],
  ["7d", "last 7 days"],
  ["30d", "last 30 days"],
  ["between", "between …"],
]

export type SortField = NonNullable<Query["sort_by"]>
type SortOrder = NonNullable<Query["sort_order"]>

type Order = readonly [SortField, SortOrder, string]

/** Orders that the page offers, with their names. The first is that of the list as it is opened. */
export const ORDERS: readonly [Order, ...Order[]] = [
  ["created_at", "desc", "newest first"],
  ["created_at", "asc", "oldest first"],
  ["name", "asc", "name, A to Z"],
  ["name", "desc", "name, Z to A"],
  ["cost", "desc", "highest cost"],
  ["cost", "asc", "lowest cost"],
  ["run_time", "desc", "longest run"],
  ["run_time", "asc", "shortest run"],
  ["started_at", "desc", "started last"],
  ["ended_at", "desc", "ended last"],
  ["ended_at", "asc", "ended first"],
]

/** Filters, order and grouping of the list of jobs, as its address has them. */
export interface Filters {
  status: JobRecord["status"] | ""
  /** Part of the name. */
  name: string
  tag: string[]
  label: string[]
  /** Name or id. */
  cronjob: string
  array: string
  submitted: Span
  /** Times of `between`, RFC 3339. */
  created_after: string
  created_before: string
  ended: Span
  ended_after: string
  ended_before: string
  sort_by: SortField
  sort_order: SortOrder
  /** `origin`: one row for each array and cronjob. */
  group: "" | "origin"
  /** Number of rows before the page. */
  offset: number
}

/** Filters of the list as it is opened. */
export const NO_FILTERS: Filters = {
  status: "",
  name: "",
  tag: [],
  label: [],
  cronjob: "",
  array: "",
  submitted: "",
  created_after: "",
  created_before: "",
  ended: "",
  ended_after: "",
  ended_before: "",
  sort_by: "created_at",
  sort_order: "desc",
  group: "",
  offset: 0,
}

/** Returns the filters of an address. A value that it can't have counts as none. */
export function filtersIn(query: URLSearchParams): Filters {
  const text = (name: string): string => query.get(name) ?? ""
  const time = (name: string): string => (Number.isNaN(Date.parse(text(name))) ? "" : text(name))
  const span = (name: string, times: readonly string[]): Span => {
    const given = SPAN_TEXTS.find(([one]) => one === text(name))?.[0] ?? ""
    return given === "" && times.some((one) => one !== "") ? "between" : given
  }
  const [created_after, created_before] = [time("created_after"), time("created_before")]
  const [ended_after, ended_before] = [time("ended_after"), time("ended_before")]
  const [by, direction] = [text("sort_by") || NO_FILTERS.sort_by, text("sort_order") || NO_FILTERS.sort_order]
  const [sort_by, sort_order] = ORDERS.find(([one, other]) => one === by && other === direction) ?? ORDERS[0]
  return {
    status: STATUSES.find((one) => one === text("status")) ?? "",
    name: text("name"),
    tag: query.getAll("tag"),
    label: query.getAll("label"),
    cronjob: text("cronjob"),
    array: text("array"),
    submitted: span("submitted", [created_after, created_before]),
    created_after,
    created_before,
    ended: span("ended", [ended_after, ended_before]),
    ended_after,
    ended_before,
    sort_by,
    sort_order,
    group: text("group") === "origin" ? "origin" : "",
    offset: Math.max(0, Math.floor(Number(text("offset"))) || 0),
  }
}

/** Returns the address of a list within its project. It has only what differs from NO_FILTERS. */
export function pathOf(filters: Partial<Filters>): string {
  const all = { ...NO_FILTERS, ...filters }
  // Other periods have no given times.
  if (all.submitted !== "between") all.created_after = all.created_before = ""
  if (all.ended !== "between") all.ended_after = all.ended_before = ""
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(all)) {
    if (value === NO_FILTERS[name as keyof Filters]) continue
    for (const one of [value].flat()) query.append(name, String(one))
  }
  const text = query.toString()
  return text === "" ? "/jobs" : `/jobs?${text}`
}

/** Returns the parameters of the API. @param now milliseconds since 1970 */
export function queryOf(filters: Filters, now: number): Query {
  const { name, submitted, ended, group: _group, ...same } = filters
  const since = (span: Span): string | undefined =>
    span === "" || span === "between" ? undefined : new Date(now - SPANS[span]).toISOString()
  const [created_after, ended_after] = [since(submitted), since(ended)]
  return {
    ...same,
    name_contains: name,
    ...(created_after !== undefined && { created_after, created_before: "" }),
    ...(ended_after !== undefined && { ended_after, ended_before: "" }),
  }
}

/** True if the filters choose among the jobs of an array or cronjob. */
export function isNarrowed({ status, name, tag, label, submitted, ended }: Filters): boolean {
  return [status, name, submitted, ended].some((one) => one !== "") || tag.length > 0 || label.length > 0
}

/** Returns a time as the value of an input for date and time, to the minute. Empty: none. */
export function inputTime(iso: string, zone: Zone): string {
  if (iso === "") return ""
  const time = new Date(iso)
  const offset = zone === "utc" ? 0 : time.getTimezoneOffset()
  return new Date(time.getTime() - offset * 60_000).toISOString().slice(0, 16)
}

/** Returns the time that such an input has, RFC 3339. Empty: none. */
export function timeOfInput(value: string, zone: Zone): string {
  if (value === "") return ""
  return new Date(zone === "utc" ? `${value}Z` : value).toISOString()
}
