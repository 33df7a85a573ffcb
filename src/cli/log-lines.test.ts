import { Buffer } from "node:buffer"
import fc from "fast-check"
import { expect, it } from "vitest"
import { LinePrefix } from "./log-lines.ts"

/** Returns a log that arrives in pieces, with its prefixes. */
function marked(lines: LinePrefix, log: Buffer, cuts: readonly number[]): string {
  const places = [0, ...cuts.map((cut) => Math.min(cut, log.length)).toSorted((a, b) => a - b), log.length]
  const pieces = places.slice(1).map((end, index) => lines.of(log.subarray(places[index], end)))
  return Buffer.concat([...pieces, lines.end()]).toString()
}

it("each line begins with the text that is put before it, wherever the log is cut", () => {
  const texts = fc.array(fc.constantFrom("a", "é", "\n", "\r", " "), { maxLength: 30 })
  fc.assert(
    fc.property(texts, fc.array(fc.nat(30)), (characters, cuts) => {
      const log = Buffer.from(characters.join(""))
      const whole = log.toString().replace(/\n$/, "")
      const wanted =
        log.length === 0
          ? ""
          : `${whole
              .split("\n")
              .map((line) => `[3] ${line}`)
              .join("\n")}\n`
      expect(marked(new LinePrefix("[3] "), log, cuts)).toBe(wanted)
    }),
  )
})

it("a line repeats text and time on a screen where a carriage return would let a progress bar overwrite them", () => {
  const time = "2026-01-02T10:00:00.500Z "
  const log = Buffer.from(`${time}\r 1 %\r 2 %\r\r 3 %\r\n- unix\r\n- last\r`)
  const screen = `[3] ${time}\r[3] ${time} 1 %\r[3] ${time} 2 %\r\r[3] ${time} 3 %\r\n[3] - unix\r\n[3] - last\r\n`
  fc.assert(
    fc.property(fc.array(fc.nat(log.length)), (cuts) => {
      expect(marked(new LinePrefix("[3] ", { isTimed: true, isScreen: true }), log, cuts)).toBe(screen)
      expect(marked(new LinePrefix("", { isTimed: true, isScreen: false }), log, cuts)).toBe(`${log}\n`)
    }),
  )
})
