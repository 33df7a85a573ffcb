import { Buffer } from "node:buffer"
import fc from "fast-check"
import { expect, it } from "vitest"
import { arrivalTimes, LinePrefix } from "./log-lines.ts"

/** Returns a log that arrived in pieces, with its prefixes. */
function marked(lines: LinePrefix, pieces: readonly string[]): string {
  return Buffer.concat([...pieces.map((piece) => lines.of(Buffer.from(piece))), lines.end()]).toString()
}

it("puts the text before each line, wherever the log is cut", () => {
  const texts = fc.array(fc.constantFrom("a", "é", "\n", "\r", " "), { maxLength: 30 })
  fc.assert(
    fc.property(texts, fc.array(fc.nat(30)), (characters, cuts) => {
      const log = Buffer.from(characters.join(""))
      const places = [0, ...cuts.map((cut) => Math.min(cut, log.length)).toSorted((a, b) => a - b), log.length]
      const lines = new LinePrefix(() => "[3] ")
      const pieces = places.slice(1).map((end, index) => lines.of(log.subarray(places[index], end)))
      const text = Buffer.concat([...pieces, lines.end()]).toString()
      const whole = log.toString().replace(/\n$/, "")
      const wanted =
        log.length === 0
          ? ""
          : `${whole
              .split("\n")
              .map((line) => `[3] ${line}`)
              .join("\n")}\n`
      expect(text).toBe(wanted)
    }),
  )
})

it("gives a time only to lines that arrive while it follows", () => {
  const times = arrivalTimes(10, () => new Date("2026-01-02T10:00:00.5Z"))
  expect(marked(times, ["old\nolder\n", "new\nne", "wer"])).toBe(
    [
      "-                    old",
      "-                    older",
      "2026-01-02T10:00:00Z new",
      "2026-01-02T10:00:00Z newer",
      "",
    ].join("\n"),
  )
})
