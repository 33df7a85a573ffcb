import { expect, test } from "vitest"
import { withSharedStrings } from "./shared-strings.ts"

test("shared strings change no value, at any depth, though thousands of others come between", () => {
  const job = {
    metadata: { name: "a", labels: { team: "a" } },
    spec: { args: ["a", "b", ["a"]], tty: true, env: null },
  }
  const numbers = Array.from({ length: 20_000 }, (_, n) => ({ name: `${n}`, args: [`${n % 7}`, n] }))
  for (const value of [job, ...numbers, job]) {
    const copy = structuredClone(value)
    expect(withSharedStrings(value)).toBe(value)
    expect(value).toEqual(copy)
  }
})
