import type { Request } from "express"
import { ANNOTATIONS, type KubeObject } from "../apis/meta.ts"
import { badRequest, Problem } from "./problem.ts"

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

/** What an Idempotency-Key may be: it is kept on an object, so it has a bound. */
export const IDEMPOTENCY_KEY_PATTERN = "^[!-~]([ -~]{0,253}[!-~])?$"
const ALLOWED_KEY = new RegExp(IDEMPOTENCY_KEY_PATTERN)

/**
 * The request's Idempotency-Key.
 * @throws Problem 400
 */
export function idempotencyKeyOf(req: Request): string | undefined {
  const header = req.get("Idempotency-Key")
  if (header === undefined || ALLOWED_KEY.test(header)) return header
  throw badRequest("Idempotency-Key must have 1 to 255 printable ASCII characters.")
}

/** Lets tasks of one key run one after the other; tasks of different keys don't wait for each other. */
export class Turns {
  readonly #last = new Map<string, Promise<unknown>>()

  async take<Result>(key: string, task: () => Promise<Result>): Promise<Result> {
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
