import { expect, test } from "vitest"
import { cut, durationText, formatTable, formatTime, usdText, wrapText } from "./table.ts"

test("a table has no lines, and aligns numbers to the right", () => {
  const columns = [
    { title: "NAME", cell: ([name]: [string, string]) => name },
    { title: "COST", cell: ([, cost]: [string, string]) => cost, alignsRight: true },
    { title: "MORE", cell: () => "wide", isWide: true },
  ]
  const rows: [string, string][] = [
    ["a", "$1"],
    ["longer", "$10.50"],
  ]
  expect(formatTable(rows, columns)).toBe("NAME      COST\na           $1\nlonger  $10.50")
  expect(formatTable(rows.slice(0, 1), columns, true)).toBe("NAME  COST  MORE\na       $1  wide")
})

test.each(["2026-01-31T12:00:09.123Z", "2026-01-31T12:00:09.123456Z", "2026-01-31T12:00:09Z"])(
  "the time %s has whole seconds",
  (time) => expect(formatTime(time)).toBe("2026-01-31T12:00:09Z"),
)

test("control characters of others are made visible", () => {
  const table = formatTable(["\u001b[2Jevil\u202e\nname"], [{ title: "NAME", cell: (text: string) => text }])
  expect(table).toBe("NAME\n\\u001b[2Jevil\\u202e name")
})

test.each([
  [0, "0s"],
  [59.9, "59s"],
  [60, "1m"],
  [61, "1m1s"],
  [7500, "2h5m"],
  [86_400, "1d"],
  [90_061, "1d1h"],
])("%d s are %s", (seconds, text) => {
  expect(durationText(seconds)).toBe(text)
})

test.each([
  [0, "$0"],
  [0.000333, "$0.000333"],
  [0.02, "$0.02"],
  [0.4, "$0.40"],
  [0.1, "$0.10"],
  [0.999, "$0.999"],
  [0.7548, "$0.755"],
  [12.345, "$12.35"],
  [1.5, "$1.50"],
])("%d USD are %s", (usd, text) => {
  expect(usdText(usd)).toBe(text)
})

test("a paragraph wraps at spaces, without the codes of colors, and keeps its start", () => {
  expect(wrapText("  Why:  one two three", "        ", 16)).toBe("  Why:  one two\n        three")
  expect(wrapText("a-word-that-is-longer than it", "  ", 10)).toBe("a-word-that-is-longer\n  than it")
  expect(wrapText("\u001b[33mone\u001b[39m two", "", 7)).toBe("\u001b[33mone\u001b[39m two")
  expect(cut("0123456789", 5)).toBe("0123…")
})
