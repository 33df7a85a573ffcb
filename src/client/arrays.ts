import { allItems, type BerthClient, type JobSubmission, readBody, type Schemas } from "./client.ts"
import { csvField } from "./costs.ts"
import { readChanges } from "./events.ts"
import type { operations } from "./schema.d.ts"

export type ArrayRecord = Schemas["ArrayRecord"]
export type ArrayIndex = Schemas["ArrayIndex"]

/** Order of the indexes of an array, and the status that they have. */
export type IndexOrder = Pick<
  NonNullable<operations["listArrayIndexes"]["parameters"]["query"]>,
  "sort_by" | "sort_order" | "status"
>

/** Returns all indexes of an array, with the results of their last jobs. */
export function allIndexes(client: BerthClient, id: string, order: IndexOrder = {}): Promise<ArrayIndex[]> {
  return allItems(
    (page) =>
      readBody(client.api.GET("/arrays/{id}/indexes", { params: { path: { id }, query: { ...order, ...page } } })),
    ({ indexes }) => indexes,
  )
}

const RESULTS = ["status", "job", "exit_code", "duration_seconds", "cost_usd", "reason", "message"] as const

/** Returns indexes as CSV, with a column for each variable of the array. */
export function csvOfIndexes({ matrix }: Pick<ArrayRecord, "matrix">, indexes: readonly ArrayIndex[]): string {
  const variables = Object.keys(matrix ?? {}).sort()
  const rows = indexes.map((row) => [
    row.index,
    ...variables.map((name) => row.values[name]),
    ...RESULTS.map((field) => row[field]),
  ])
  return [["index", ...variables, ...RESULTS], ...rows]
    .map((cells) => `${cells.map((cell) => (typeof cell === "string" ? csvField(cell) : (cell ?? ""))).join(",")}\n`)
    .join("")
}

/** Returns the definition of the jobs of an array or a cronjob: a job without a name and an order. The API checks it. */
export function definitionOf(job: JobSubmission): Schemas["JobDefinition"] {
  const {
    name: _name,
    namePrefix: _prefix,
    project_id: _project,
    organization_id: _organization,
    after: _after,
    ...definition
  } = job
  return definition as Schemas["JobDefinition"]
}

export function readArray(client: BerthClient, id: string, signal?: AbortSignal): Promise<ArrayRecord> {
  return readBody(client.api.GET("/arrays/{id}", { params: { path: { id } }, ...(signal !== undefined && { signal }) }))
}

/**
 * Returns the record of an array now, and again after its changes. Ends when the array has ended.
 * @throws ApiError, such as 404 after the array is deleted
 */
export async function* watchArray(
  client: BerthClient,
  id: string,
  signal?: AbortSignal,
): AsyncGenerator<ArrayRecord, void, void> {
  const first = await readArray(client, id, signal)
  yield first
  if (first.ended_at !== null) return
  for await (const change of readChanges(client, signal)) {
    const isOurs = change.event === "reset" || (change.event === "array" && change.record.id === first.id)
    if (!isOurs) continue
    const isRecord = change.event === "array" && !("deleted" in change.record)
    const record = isRecord ? (change.record as ArrayRecord) : await readArray(client, first.id, signal)
    yield record
    if (record.ended_at !== null) return
  }
}

/** State of one index. `running` stands for every job that has not ended; `pending`: it has no job yet. */
export type IndexState = "pending" | "running" | "succeeded" | "failed" | "cancelled"

/** Returns the state of each index of an array. */
export function indexStates(array: ArrayRecord): IndexState[] {
  const states = new Array<IndexState>(array.size).fill("pending")
  const mark = (indexes: string, state: IndexState): void => {
    for (const range of indexes === "" ? [] : indexes.split(",")) {
      const [first = 0, last = first] = range.split("-").map(Number)
      states.fill(state, first, last + 1)
    }
  }
  // An index that has ended may still be active, until its cost is final.
  mark(array.active_indexes, "running")
  mark(array.succeeded_indexes, "succeeded")
  mark(array.failed_indexes, "failed")
  mark(array.cancelled_indexes, "cancelled")
  return states
}

/** Returns the name of the job of an index, in its last attempt. */
export function jobNameOf(array: ArrayRecord, index: number): string {
  const isIn = (indexes: string) =>
    indexes.split(",").some((range) => {
      const [first = 0, last = first] = range.split("-").map(Number)
      return first <= index && index <= last
    })
  const attempt = array.attempts.find(({ indexes }) => isIn(indexes))?.attempt
  return attempt === undefined ? `${array.name}-${index}` : `${array.name}-${index}-${attempt}`
}

/** Returns the value of each variable for an index. The last variable of the alphabet changes fastest. */
export function valuesOf({ matrix }: Pick<ArrayRecord, "matrix">, index: number): [name: string, value: string][] {
  let rest = index
  return Object.entries(matrix ?? {})
    .sort(([a], [b]) => (a < b ? 1 : -1))
    .map(([name, values]): [string, string] => {
      const value = values[rest % values.length] ?? ""
      rest = Math.floor(rest / values.length)
      return [name, value]
    })
    .reverse()
}
