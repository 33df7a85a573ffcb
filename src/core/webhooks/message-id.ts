import { createHash } from "node:crypto"

/** Namespace of the ids, a random UUID. Another one would make every id new. */
const NAMESPACE = Buffer.from("6f2b5a4e0d5c4b1c9d3a7c41f0e2b86d", "hex")

/**
 * Returns the id of a message: a UUID of version 5 (RFC 9562) of the webhook and the event. So each attempt, of any
 * operator, has the same id.
 * @param event parts that only this event has, such as the job's id, its phase and the time
 */
export function messageId(webhookUid: string, event: readonly string[]): string {
  // JSON, because parts that a separator joins could be split in two ways.
  const name = JSON.stringify([webhookUid, ...event])
  const hash = createHash("sha1").update(NAMESPACE).update(name).digest().subarray(0, 16)
  hash[6] = ((hash[6] ?? 0) & 0x0f) | 0x50
  hash[8] = ((hash[8] ?? 0) & 0x3f) | 0x80
  return hash.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5")
}
