import { describe, expect, test } from "vitest"
import { backoffSeconds, pause } from "./backoff.ts"
import { systemClock } from "./clock.ts"

describe("backoffSeconds", () => {
  test("doubles up to the cap, half of it random, also after very many failures", () => {
    const limits = { baseSeconds: 1, capSeconds: 30 }
    for (const failures of [1, 2, 3, 5, 6, 100, 2000]) {
      const whole = Math.min(30, 2 ** (failures - 1))
      expect(backoffSeconds(failures, limits, () => 0)).toBe(whole / 2)
      expect(backoffSeconds(failures, limits, () => 1)).toBe(whole)
    }
  })
})

test("pause rejects with the reason of an aborted signal", async () => {
  const reason = new Error("the program ends")
  await expect(pause(systemClock, 3600, AbortSignal.abort(reason))).rejects.toBe(reason)
  const end = new AbortController()
  const waiting = pause(systemClock, 3600, end.signal)
  end.abort(reason)
  await expect(waiting).rejects.toBe(reason)
})
