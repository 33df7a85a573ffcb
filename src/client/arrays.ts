import { type BerthClient, fetched, type Schemas } from "./client.ts"
import { changesOf } from "./events.ts"

export type ArrayRecord = Schemas["ArrayRecord"]

export function readArray(client: BerthClient, id: string, signal?: AbortSignal): Promise<ArrayRecord> {
  return fetched(client.api.GET("/arrays/{id}", { params: { path: { id } }, ...(signal !== undefined && { signal }) }))
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
  for await (const change of changesOf(client, signal)) {
    const isOurs = change.event === "reset" || (change.event === "array" && change.record.id === first.id)
    if (!isOurs) continue
    const isRecord = change.event === "array" && !("deleted" in change.record)
    const record = isRecord ? (change.record as ArrayRecord) : await readArray(client, first.id, signal)
    yield record
    if (record.ended_at !== null) return
  }
}
