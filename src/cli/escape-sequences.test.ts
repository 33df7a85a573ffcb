import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { ColorsOnly, colorsOnly } from "./escape-sequences.ts"

const ESC = "\u001b"
const COLOR = new RegExp(`${ESC}\\[[0-9;:]*m`, "g")
/** Control characters that must not be left, as the terminal's own class of them. */
const LEFT = /[^\P{Cc}\t\n\b\r]/u

describe("text for a terminal", () => {
  it.each([
    ["colors", `${ESC}[1;31mred${ESC}[0m ${ESC}[38;5;12mblue${ESC}[m`],
    ["a progress bar", "\r 10 %|#   |\r100 %|####|\n"],
    ["tabs, and text of all scripts", "a\tb → 日本 é 🙂"],
  ])("keeps %s", (_, text) => {
    expect(new ColorsOnly().of(text)).toBe(text)
  })

  it("leaves out returns and backspaces of a text that is no log", () => {
    expect(colorsOnly("failed\r\b\b\b\b\b\bsucceeded\r\n")).toBe("failedsucceeded\n")
  })

  it.each([
    ["the clipboard (OSC 52)", `a${ESC}]52;c;aGVsbG8=\u0007b`],
    ["the title, ended by ST", `a${ESC}]0;owned${ESC}\\b`],
    ["a hyperlink", `a${ESC}]8;;http://evil.example${ESC}\\b`],
    ["clearing the screen", `a${ESC}[2J${ESC}[H${ESC}cb`],
    ["a question that the terminal answers", `a${ESC}[6n${ESC}[c${ESC}Zb`],
    ["private modes", `a${ESC}[?1049h${ESC}[?25lb`],
    ["a color with intermediates, which is another command", `a${ESC}[1 qb`],
    ["device control strings", `a${ESC}P$q"p${ESC}\\b`],
    ["character sets and bells", `a${ESC}(0\u0007\u000eb`],
    ["C1 controls", "a\u009b\u009d\u009cb"],
    ["directions of text", "a\u202e\u2066b"],
  ])("leaves out %s", (_, text) => {
    expect(colorsOnly(text)).toBe("ab")
  })

  it("shows what follows a sequence that never ends", () => {
    expect(colorsOnly(`${ESC}]0;title\nnext line`)).toBe("\nnext line")
    expect(colorsOnly(`${ESC}]${"x".repeat(5000)}`).length).toBeGreaterThan(800)
    expect(colorsOnly(`${ESC}[${"1;".repeat(50)}end`)).toContain("end")
  })

  it("gives the same in any pieces, and no control but those of colors", () => {
    const part = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.constantFrom(
        ESC,
        `${ESC}[`,
        `${ESC}]`,
        "31",
        ";",
        "m",
        "J",
        "\u0007",
        `${ESC}\\`,
        "\n",
        "\r",
        "52;c;",
        "\u009b",
      ),
    )
    fc.assert(
      fc.property(fc.array(part, { maxLength: 60 }), (pieces) => {
        const stream = new ColorsOnly()
        const passed = pieces.map((piece) => stream.of(piece)).join("")
        expect(passed).toBe(new ColorsOnly().of(pieces.join("")))
        expect(LEFT.test(passed.replaceAll(COLOR, ""))).toBe(false)
      }),
    )
  })
})
