import { describe, expect, it } from "vitest"
import { readTail, shownLine } from "./output.ts"

async function* pieces(text: string, size = 1000): AsyncGenerator<Uint8Array> {
  const bytes = Buffer.from(text)
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}

it("shows a line as a terminal does in the end, without colors", () => {
  expect(shownLine("  5%|#\r 50%|#####\r\x1b[32m100%\x1b[0m|##########\r")).toBe("100%|##########")
})

describe("the tail of a log", () => {
  const numbers = (count: number): string[] => Array.from({ length: count }, (_, index) => `line ${index + 1}`)

  it("is its last 20 lines, without empty ones around", async () => {
    expect(await readTail(pieces("\n\nonly\n\n"))).toBe("only")
    expect(await readTail(pieces(numbers(100).join("\n")))).toBe(numbers(100).slice(-20).join("\n"))
    expect(await readTail(pieces("a\n\nb\n"))).toBe("a\n\nb")
    expect(await readTail(pieces(""))).toBe("")
    expect(await readTail(pieces("\n \n"))).toBe("")
  })

  it("has at most 2 KiB of whole lines, or the beginning of a longer last one", async () => {
    const lines = numbers(5).map((line) => line + "ü".repeat(400))
    expect(await readTail(pieces(lines.join("\n"), 7))).toBe(lines.slice(-2).join("\n"))
    for (const character of ["x", "ü", "😀"]) {
      const cut = await readTail(pieces(`first\nError: ${character.repeat(15_000)}\n`))
      expect(Buffer.byteLength(cut)).toBeLessThanOrEqual(2048)
      expect(Buffer.byteLength(cut)).toBeGreaterThan(2040)
      expect(cut).toMatch(/^Error: .*…$/u)
      expect(cut.isWellFormed()).toBe(true)
    }
  })

  it("is bounded, whatever the log has", async () => {
    expect(await readTail(pieces(`${"x".repeat(200_000)}\nlast`))).toBe("last")
    expect((await readTail(pieces("x".repeat(200_000)))).length).toBe(2046)
    expect(await readTail(pieces(`a\n${"50%\r".repeat(10_000)}100%\n`))).toBe("a\n100%")
    expect(await readTail(pieces("\xff\xfe"))).toBe("\u00ff\u00fe")
  })
})
