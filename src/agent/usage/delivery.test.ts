import { expect, it } from "vitest"
import { ManualClock } from "../../../test/harness/manual-clock.ts"
import { USAGE_POINTS, type UsagePoint } from "../../core/apis/usage.ts"
import { UsageDelivery } from "./delivery.ts"

const ANSWER = { desired: "run", heartbeatSeconds: 15 } as const

const minutes = (count: number): UsagePoint[] =>
  Array.from({ length: count }, (_, index) => ({ time: index * 60_000, seconds: 60, cpu: 1, memoryMib: 100 }))

it("sends the points after the held one, and all with the finish or if the held one may be merged with others", () => {
  const clock = new ManualClock()
  const meter = { points: minutes(2), stored: () => undefined }
  const delivery = new UsageDelivery(meter, clock)
  const next = (hasFinish = false) => {
    clock.advance(60)
    const sent = delivery.next(hasFinish)
    delivery.answered(sent, { ...ANSWER, usageHeld: sent.usage?.at(-1)?.time ?? 0 })
    return sent
  }
  expect(next()).toEqual({ usage: minutes(2) })
  expect(next()).toEqual({})
  meter.points = minutes(4)
  expect(next()).toEqual({ usage: minutes(4).slice(2), usageAfter: 60_000 })
  expect(next(true)).toEqual({ usage: minutes(4) })
  meter.points = minutes(USAGE_POINTS - 1)
  expect(next().usage).toHaveLength(USAGE_POINTS - 1 - 4)
  meter.points = minutes(USAGE_POINTS)
  expect(next()).toEqual({ usage: minutes(USAGE_POINTS) })
})
