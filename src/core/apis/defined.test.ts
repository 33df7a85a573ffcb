import { expect, expectTypeOf, test } from "vitest"
import { defined } from "./defined.ts"

test("undefined fields are left out, and only these", () => {
  const found = defined({ a: 1, b: undefined as string | undefined, c: null, d: 0, e: "", f: false })
  expect(Object.entries(found)).toEqual(Object.entries({ a: 1, c: null, d: 0, e: "", f: false }))
  expectTypeOf(defined({ a: 1, b: "" as string | undefined })).toEqualTypeOf<{ a: number } & { b?: string }>()
})
