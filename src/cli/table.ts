import { stripVTControlCharacters } from "node:util"
import Table from "cli-table3"
import { parseGib } from "../core/apis/quantity.ts"
import { shown } from "./terminal.ts"

/** Column of a table of records. */
export interface Column<Row> {
  title: string
  cell: (row: Row) => string
  /** True for numbers. */
  alignsRight?: boolean
  /** True for columns that only `-o wide` shows. */
  isWide?: boolean
  /** Returns the cell with the colors of a terminal. */
  styled?: (cell: string, row: Row) => string
}

/** Characters of a table without lines, as kubectl's. */
const NO_LINES = Object.fromEntries(
  ["top", "bottom", "left", "right", "mid"]
    .flatMap((side) => [side, `${side}-mid`, `${side}-left`, `${side}-right`])
    .concat("middle")
    .map((place) => [place, ""]),
)

/** Returns a table without lines, with a title for each column. Control characters in cells are made visible. */
export function formatTable<Row>(rows: readonly Row[], columns: readonly Column<Row>[], isWide = false): string {
  const used = columns.filter((column) => isWide || column.isWide !== true)
  const table = new Table({
    chars: NO_LINES,
    style: { "padding-left": 0, "padding-right": 2, head: [], border: [], compact: true },
    colAligns: used.map(({ alignsRight }) => (alignsRight === true ? "right" : "left")),
  })
  table.push(used.map(({ title }) => title))
  for (const row of rows) table.push(used.map(({ cell, styled = (text) => text }) => styled(shown(cell(row)), row)))
  return table
    .toString()
    .split("\n")
    .map((line) => line.trimEnd())
    .join("\n")
}

const UNITS: [seconds: number, unit: string][] = [
  [86_400, "d"],
  [3600, "h"],
  [60, "m"],
  [1, "s"],
]

/** Returns a duration with its two largest units, such as `2h5m`; `0s` below a second. */
export function durationText(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds))
  const first = UNITS.findIndex(([size]) => whole >= size)
  if (first < 0) return "0s"
  const parts = UNITS.slice(first, first + 2).map(([size, unit], index) => {
    const count = Math.floor(index === 0 ? whole / size : (whole % (UNITS[first]?.[0] ?? 1)) / size)
    return { count, text: `${count}${unit}` }
  })
  return parts.flatMap(({ count, text }, index) => (index > 0 && count === 0 ? [] : [text])).join("")
}

/** Returns an ISO time in UTC with whole seconds, such as `2026-01-31T12:00:00Z`. */
export function formatTime(time: string): string {
  return `${time.slice(0, 19)}Z`
}

/** Returns the time since an ISO time, such as `5m`, as kubectl's ages. */
export function formatAge(time: string | null | undefined, now: Date): string {
  return time == null ? "" : durationText((now.getTime() - Date.parse(time)) / 1000)
}

/** Widest line of prose, characters. */
const LINE_WIDTH = 120

/** Returns prose in lines of at most `LINE_WIDTH` characters. @param indent start of each line but the first */
export function wrapText(text: string, indent: string, width = LINE_WIDTH - 2): string {
  const lines: string[] = []
  let line = ""
  for (const word of text.match(/ *[^ ]+/g) ?? []) {
    const isFirst = line.trim() === ""
    if (isFirst || visibleLength(line + word) <= width) line += word
    else {
      lines.push(line)
      line = `${indent}${word.trimStart()}`
    }
  }
  lines.push(line)
  return lines.join("\n")
}

/** Returns the length of a text on a terminal, without the codes of its colors. */
function visibleLength(text: string): number {
  return stripVTControlCharacters(text).length
}

/** Returns a text of at most so many characters. One that is longer ends with `…`. */
export function cut(text: string, length: number): string {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`
}

/** Returns USD with as many digits as the amount needs, and at least cents: `$12.34`, `$0.0031`, `$0.40`. */
export function usdText(usd: number): string {
  if (usd === 0) return "$0"
  const cents = usd.toFixed(2)
  const exact = usd.toPrecision(3).replace(/0+$/, "")
  return `$${usd >= 1 || exact.length < cents.length ? cents : exact}`
}

/** Returns the GiB of a size such as `16Gi`, with at most one digit behind the point. */
export function gibText(size: string): string {
  return String(Math.round(parseGib(size) * 10) / 10)
}
