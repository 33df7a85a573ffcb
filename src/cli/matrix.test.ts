import { describe, expect, test } from "vitest"
import { arrayShapeOf } from "./matrix.ts"

describe("arrayShapeOf", () => {
  test.each<[string, object]>([
    ["100", { size: 100 }],
    ["lr=0.1,0.01 seed=1..3", { matrix: { lr: ["0.1", "0.01"], seed: ["1", "2", "3"] } }],
    ["A=-1..1,9", { matrix: { A: ["-1", "0", "1", "9"] } }],
    [" A=x=y\n B=2.5 ", { matrix: { A: ["x=y"], B: ["2.5"] } }],
    ["A=01..03 B=8..010", { matrix: { A: ["01", "02", "03"], B: ["008", "009", "010"] } }],
    ["A=-01..1", { matrix: { A: ["-01", "000", "001"] } }],
    ["A=", { matrix: { A: [""] } }],
  ])("reads %j", (text, shape) => {
    expect(arrayShapeOf(text)).toEqual(shape)
  })

  test.each<[string, string]>([
    ["", "is empty"],
    ["lr", "lr is no variable"],
    ["0", "0 is no variable"],
    ["a-b=1", "a-b=1 is no variable"],
    ["A=1 A=2", "A is there twice"],
    ["A=3..1", "the range 3..1 is empty"],
    ["A=1..20000", "has more than 10000 values"],
    ["lr=0.1..0.3", "0.1..0.3 is no range of whole numbers such as 1..50. Write the values, with commas."],
    ["A=1..2..3", "is no range"],
    ["A=a..c", "is no range"],
  ])("rejects %j", (text, message) => {
    expect(() => arrayShapeOf(text)).toThrow(message)
  })
})
