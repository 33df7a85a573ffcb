import fc from "fast-check"
import { expect, it } from "vitest"
import type { UsagePoint } from "../../core/apis/usage.ts"
import { PointBuffer } from "./point-buffer.ts"

const pointAt = (time: number): UsagePoint => ({ time, seconds: 60, cpu: time % 7, memoryMib: 1.5, gpu: 5 })

/** Adds so many points, or removes so many of those that were ever added. */
const anyAct = fc.oneof(
  fc.record({ add: fc.integer({ min: 0, max: 70 }) }),
  fc.record({ remove: fc.integer({ min: 0, max: 100 }) }),
)

it("has the points that were added and not removed", () => {
  fc.assert(
    fc.property(fc.array(anyAct, { maxLength: 12 }), (acts) => {
      const buffer = new PointBuffer()
      let [points, next]: [UsagePoint[], number] = [[], 0]
      for (const act of acts) {
        if ("add" in act) {
          const more = Array.from({ length: act.add }, (_, index) => pointAt((next + index) * 60_000))
          next += act.add
          points.push(...more)
          buffer.add(more)
        } else {
          points = points.filter(({ time }) => time > act.remove * 60_000)
          buffer.removeUntil(act.remove * 60_000)
        }
        expect(buffer.list()).toEqual(points)
        expect(buffer.size).toBe(points.length)
        expect(buffer.spanSeconds).toBe(points.length * 60)
      }
    }),
  )
})
