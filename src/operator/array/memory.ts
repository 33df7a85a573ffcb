import type { Clock } from "../../core/apis/clock.ts"
import type { Cause } from "./status.ts"

/** Time for which a rejected Job keeps an array from creating others. */
const REJECTED_SECONDS = 60

/** Facts about an array that only this process knows. A new leader finds them out again. */
interface Known {
  /** Indexes whose Job could not be created, because another Job has its name. */
  taken: Set<number>
  rejection?: { cause: Cause; at: number }
  writtenAt?: number
}

/** Facts about arrays that only this process knows, by uid. */
export class Memory {
  readonly #clock: Pick<Clock, "monotonic">
  readonly #known = new Map<string, Known>()

  constructor(clock: Pick<Clock, "monotonic">) {
    this.#clock = clock
  }

  of(uid: string): { taken: ReadonlySet<number>; rejection?: Cause | undefined; writtenSeconds?: number | undefined } {
    const { taken = new Set<number>(), rejection, writtenAt } = this.#known.get(uid) ?? {}
    const now = this.#clock.monotonic()
    return {
      taken,
      rejection: rejection !== undefined && now - rejection.at < REJECTED_SECONDS ? rejection.cause : undefined,
      writtenSeconds: writtenAt === undefined ? undefined : now - writtenAt,
    }
  }

  /** Notes a write of the status. It has the next attempts of the indexes whose names were taken. */
  wrote(uid: string): void {
    const known = this.#get(uid)
    known.taken = new Set()
    known.writtenAt = this.#clock.monotonic()
  }

  taken(uid: string, index: number): void {
    this.#get(uid).taken.add(index)
  }

  rejected(uid: string, cause: Cause): void {
    this.#get(uid).rejection = { cause, at: this.#clock.monotonic() }
  }

  forget(uid: string): void {
    this.#known.delete(uid)
  }

  #get(uid: string): Known {
    const known = this.#known.get(uid) ?? { taken: new Set() }
    this.#known.set(uid, known)
    return known
  }
}
