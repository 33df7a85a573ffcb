import type { Request } from "express"
import { ANNOTATIONS, type KubeObject } from "../apis/meta.ts"
import type { Refused } from "../http/checked.ts"
import { badRequest, invalidRequest, Problem } from "../http/problem.ts"

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

/**
 * What the same request has made before, though it would make nothing any more.
 * @param what the body is, for people
 * @param find finds it by the request's key
 * @throws Problem 400 when there is nothing; what `find` rejects with
 */
export async function madeBefore<Body, Made>(
  { faults, once }: Refused<Body>,
  what: string,
  key: string | undefined,
  find: (body: Body, key: string) => Promise<Made | undefined>,
): Promise<Made> {
  const made = once === undefined || key === undefined ? undefined : await find(once, key)
  if (made === undefined) throw invalidRequest(faults, what)
  return made
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
