import { createHash } from "node:crypto"
import { ANNOTATIONS, LABELS, type ObjectMeta } from "../core/apis/meta.ts"

/** Length of the hash in the label: enough that two keys never have the same, and short enough for a label. */
const HASH_LENGTH = 40

/**
 * Returns the labels and annotations of an object that a request with an Idempotency-Key creates. The label is for live
 * lists. It has a hash, because a label can't hold every key.
 */
export function idempotencyMarks(
  request: { key: string; requestHash?: string } | undefined,
): Required<Pick<ObjectMeta, "labels" | "annotations">> {
  if (request === undefined) return { labels: {}, annotations: {} }
  const { key, requestHash } = request
  return {
    labels: { [LABELS.idempotencyKey]: hashOf(key) },
    annotations: {
      [ANNOTATIONS.idempotencyKey]: key,
      ...(requestHash !== undefined && { [ANNOTATIONS.requestHash]: requestHash }),
    },
  }
}

/** Returns the label selector of the objects that requests with this Idempotency-Key created. */
export function idempotencySelector(key: string): string {
  return `${LABELS.idempotencyKey}=${hashOf(key)}`
}

function hashOf(key: string): string {
  return createHash("sha256").update(key).digest("hex").slice(0, HASH_LENGTH)
}
