import { expect, it } from "vitest"
import { inQuarters, progressLine, progressOf } from "./progress.mjs"

it("progress estimates the time left from the share that is done", () => {
  expect(progressOf("building", 0.25, 60)).toEqual({ what: "building", done: 0.25, secondsLeft: 180 })
})

it.each([
  ["little is done", 0.01, 60],
  ["the step has just started", 0.25, 1],
])("progress gives no estimate while %s", (_, done, seconds) => {
  expect(progressOf("building", done, seconds)).toEqual({ what: "building", done })
})

it.each([
  [{ done: 0.349 }, "building: 34 %"],
  [{ done: 0.34, secondsLeft: 61 }, "building: 34 %, about 65 s left"],
  [{ done: 0.34, secondsLeft: 0.2 }, "building: 34 %, about 5 s left"],
  [{ done: 0.34, secondsLeft: 241 }, "building: 34 %, about 5 min left"],
  [{ done: 1, secondsLeft: 0 }, "building: 100 %"],
])("progress shows %o as one line", (progress, line) => {
  expect(progressLine({ what: "building", ...progress })).toBe(line)
})

it("progress in a log writes a line at the start and at each quarter of a step", () => {
  const lines: string[] = []
  const progress = inQuarters((line) => lines.push(line))
  for (let percent = 0; percent <= 100; percent++) progress({ what: "a", done: percent / 100 })
  progress({ what: "b", done: 0.6 })
  expect(lines).toEqual(["a: 0 %", "a: 25 %", "a: 50 %", "a: 75 %", "a: 100 %", "b: 60 %"])
})
