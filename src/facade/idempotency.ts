import { createHash } from "node:crypto"
import { ANNOTATIONS, type KubeObject } from "../apis/meta.ts"
import { Problem } from "../http/problem.ts"

/** A request that may be sent again: its key, and the hash of its body that tells it from another one. */
export interface Idempotency {
  key: string
  requestHash: string
}

/** The Idempotency-Key of the request that made an object. */
export function usedKey(object: Pick<KubeObject, "metadata"> | undefined): string | undefined {
  return object?.metadata.annotations?.[ANNOTATIONS.idempotencyKey]
}

/** 422: the key stands for another request. */
export function keyReused(key: string): Problem {
  const detail = `The Idempotency-Key ${JSON.stringify(key)} was used for another body: choose a new key.`
  return new Problem({ type: "idempotency-key-reused", status: 422, detail })
}

/** The object, if the same request made it. @throws Problem 422 */
export function replayed<T extends Pick<KubeObject, "metadata">>(
  object: T | undefined,
  { key, requestHash }: Idempotency,
): T {
  const hash = object?.metadata.annotations?.[ANNOTATIONS.requestHash]
  if (object !== undefined && usedKey(object) === key && hash === requestHash) return object
  throw keyReused(key)
}

/** SHA-256 of a body's value, in hex: the same for JSON and YAML, whatever the order of keys. */
export function requestHash(value: unknown): string {
  return createHash("sha256").update(canonical(value)).digest("hex")
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`
  if (typeof value !== "object" || value === null) return JSON.stringify(value)
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${canonical(item)}`).join(",")}}`
}

/** Lets tasks of one key run one after the other; tasks of different keys don't wait for each other. In one process. */
export class Turns {
  readonly #last = new Map<string, Promise<unknown>>()

  /** @param known where turns are shared: what another process has made in its turn, which saves the task */
  async take<Result extends object>(
    key: string,
    task: () => Promise<Result>,
    _known: () => Promise<Result | undefined>,
  ): Promise<Result> {
    const before = this.#last.get(key) ?? Promise.resolve()
    const turn = before.then(task)
    const settled = turn.catch(() => undefined)
    this.#last.set(key, settled)
    try {
      return await turn
    } finally {
      if (this.#last.get(key) === settled) this.#last.delete(key)
    }
  }
}
