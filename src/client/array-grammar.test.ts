import fc from "fast-check"
import { describe, expect, test } from "vitest"
import { ARRAY_SHAPE } from "./array-grammar.ts"

describe("the jobs of an array as text", () => {
  test.each<[string, object]>([
    ["100", { size: 100 }],
    ["lr=0.1,0.01 seed=1..3", { matrix: { lr: ["0.1", "0.01"], seed: ["1", "2", "3"] } }],
    ["A=-1..1,9", { matrix: { A: ["-1", "0", "1", "9"] } }],
    [" A=x=y\n B=2.5 ", { matrix: { A: ["x=y"], B: ["2.5"] } }],
    ["A=01..03 B=8..010", { matrix: { A: ["01", "02", "03"], B: ["008", "009", "010"] } }],
    ["A=-01..1", { matrix: { A: ["-01", "000", "001"] } }],
    ["A=", { matrix: { A: [""] } }],
    ["A=1, 2 , 3\nB=4", { matrix: { A: ["1", "2", "3"], B: ["4"] } }],
    [`A="a, b","1..3",c"d B=""`, { matrix: { A: ["a, b", "1..3", 'c"d'], B: [""] } }],
  ])("reads %j", (text, shape) => {
    expect(ARRAY_SHAPE.parse(text, {})).toEqual(shape)
  })

  test.each<[string, string]>([
    ["", "is empty"],
    ["lr", "lr, which is not a variable"],
    ["0", "0, which is not a variable"],
    ["a-b=1", "a-b=1, which is not a variable"],
    ["A=1 A=2", "A, which is there twice"],
    ["A=3..1", "the range 3..1, which is empty"],
    ["A=1..20000", "has more than 10000 values"],
    ["lr=0.1..0.3", "0.1..0.3, which is not a range of whole numbers such as 1..50. Write the values, with commas."],
    ["A=1..2..3", "is not a range"],
    ["A=a..c", "is not a range"],
    ["A=1,\nB=2", "a comma after the last value of A"],
    [`A="a" b`, "b, which is not a variable"],
    [`A="a"b`, "text after a quotation mark of A"],
    [`A="a\\x"`, "quotation marks can't be read"],
    [`A="a`, "quotation marks can't be read"],
  ])("rejects %j", (text, message) => {
    expect(ARRAY_SHAPE.parse(text, {})).toBeUndefined()
    expect(ARRAY_SHAPE.refusal(text)).toContain(message)
  })

  test("is read as what it was printed from", () => {
    const names = fc.stringMatching(/^[A-Za-z_][A-Za-z0-9_]{0,8}$/)
    const part = fc.constantFrom("1", "2", "3", "0", "-", "a", ",", " ", "..", '"', "\\", "=", "\n", "é")
    const value = fc.array(part, { maxLength: 4 }).map((parts) => parts.join(""))
    const values = fc.oneof(
      fc.array(value, { minLength: 1, maxLength: 5 }),
      fc
        .tuple(fc.integer({ min: -5, max: 5 }), fc.integer({ min: 1, max: 9 }))
        .map(([first, count]) => Array.from({ length: count }, (_, index) => String(first + index))),
    )
    const matrices = fc.dictionary(names, values, { minKeys: 1, maxKeys: 3, noNullPrototype: true })
    fc.assert(
      fc.property(matrices, (matrix) => {
        expect(ARRAY_SHAPE.parse(ARRAY_SHAPE.print({ matrix }), {})).toEqual({ matrix })
      }),
    )
    expect(ARRAY_SHAPE.print({ matrix: { SEED: ["1", "2", "3"], P: ["a b"] } })).toBe('SEED=1..3\nP="a b"')
  })
})
