import type { UsagePoint } from "../../core/apis/usage.ts"
import { numbersOf, POINT_FIELDS, pointOfNumbers } from "./series.ts"

/** Points for which there is room at first: half an hour. */
const ROOM = 32

/**
 * Points in order, 72 bytes each. Its memory is used again: arrays that grow with each point leave holes between others,
 * which cost more than the points of many VMs.
 */
export class PointBuffer {
  #numbers = new Float64Array()
  #size = 0

  /** Number of points. */
  get size(): number {
    return this.#size
  }

  /** Time from the beginning of the first point to the end of the last one, seconds. */
  get spanSeconds(): number {
    const last = (this.#size - 1) * POINT_FIELDS
    const [first = 0, begin = 0, seconds = 0] = [this.#numbers[0], this.#numbers[last], this.#numbers[last + 1]]
    return this.#size === 0 ? 0 : (begin - first) / 1000 + seconds
  }

  /** Adds points, which are later than the others. */
  add(points: readonly UsagePoint[]): void {
    const least = (this.#size + points.length) * POINT_FIELDS
    if (least > this.#numbers.length) {
      const larger = new Float64Array(Math.max(ROOM * POINT_FIELDS, 2 * this.#numbers.length, least))
      larger.set(this.#numbers)
      this.#numbers = larger
    }
    for (const point of points) this.#numbers.set(numbersOf(point), this.#size++ * POINT_FIELDS)
  }

  /** Removes the points that begin until this time, milliseconds since 1970. */
  removeUntil(time: number): void {
    let count = 0
    while (count < this.#size && (this.#numbers[count * POINT_FIELDS] ?? 0) <= time) count++
    this.#numbers.copyWithin(0, count * POINT_FIELDS, this.#size * POINT_FIELDS)
    this.#size -= count
  }

  /** Returns all points. */
  list(): UsagePoint[] {
    const at = Array.from({ length: this.#size }, (_, index) => index * POINT_FIELDS)
    return at.map((start) => pointOfNumbers(this.#numbers, start)).filter((point) => point !== undefined)
  }
}
