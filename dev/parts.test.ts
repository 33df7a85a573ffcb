import { expect, it } from "vitest"
import { Parts } from "./parts.ts"

it("a stack stops its parts in the reverse order of their start, once, whatever fails or hangs", async () => {
  const lines: string[] = []
  const stopped: string[] = []
  const parts = new Parts((line) => void lines.push(line), 60)
  const part = (name: string, end: () => Promise<unknown> = () => Promise.resolve()) =>
    parts.add(name, 0.1, () => {
      stopped.push(name)
      return end()
    })
  part("the first")
  part("the failing", () => Promise.reject(new Error("no space left")))
  part("the hanging", () => new Promise(() => undefined))
  let given = 0
  parts.add("the throwing", 1, (seconds) => {
    given = seconds
    throw new Error("at once")
  })
  part("the last")
  await Promise.all([parts.stop(), parts.stop()])
  expect(stopped).toEqual(["the last", "the hanging", "the failing", "the first"])
  expect(given).toBe(1)
  expect(lines).toEqual([
    "the throwing: stopping failed: at once; the stop continues",
    "the hanging: not stopped after 0.1 s; the stop continues",
    "the failing: stopping failed: no space left; the stop continues",
  ])
})
