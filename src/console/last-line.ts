import { plain } from "./ansi.ts"

/** Longest part of a line that is shown, characters. Its end is kept: errors of programs are often there. */
const LONGEST = 300

/** Returns the last line of a log that a terminal would show, without colors; undefined if all are empty. */
export function lastLineOf(log: string): string | undefined {
  const line = log
    .split("\n")
    .map((text) => plain(text).trim())
    .findLast((text) => text !== "")
  return line !== undefined && line.length > LONGEST ? `…${line.slice(-LONGEST)}` : line
}
