import { expect, it } from "vitest"
import { lastLineOf } from "./last-line.ts"

it.each([
  ["a\nb\n", "b"],
  ["a\n\n  \n", "a"],
  ["step 1/2\rstep 2/2\n", "step 2/2"],
  ["\x1b[31mError: no\x1b[0m\n\x1b[0m\n", "Error: no"],
  ["", undefined],
  ["\n\n", undefined],
  [`${"x".repeat(500)}end`, `…${"x".repeat(297)}end`],
])("the last line that a terminal shows is found: %j", (log, line) => {
  expect(lastLineOf(log)).toBe(line)
})
