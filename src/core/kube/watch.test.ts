import fc from "fast-check"
import { describe, expect, test } from "vitest"
import { CLIENT_REASONS, isGone, KubeError } from "./errors.ts"
import { lines, watchEvents } from "./watch.ts"

async function* chunksOf(bytes: Buffer, cuts: number[]): AsyncGenerator<Uint8Array> {
  let start = 0
  for (const cut of [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].sort((a, b) => a - b)) {
    yield bytes.subarray(start, cut)
    start = cut
  }
  yield bytes.subarray(start)
}

async function collect<T>(from: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const item of from) all.push(item)
  return all
}

describe("lines", () => {
  test("are the same for any division into chunks, also within characters", async () => {
    const line = fc.string({ unit: "grapheme" }).map((text) => text.replaceAll("\n", " "))
    await fc.assert(
      fc.asyncProperty(
        fc.array(line, { maxLength: 30, size: "max" }),
        fc.array(fc.nat(5000), { maxLength: 40, size: "max" }),
        async (texts, cuts) => {
          const bytes = Buffer.from(texts.map((text) => `${text}\n`).join(""))
          expect(await collect(lines(chunksOf(bytes, cuts)))).toEqual(texts)
        },
      ),
    )
  })

  test("are joined once when they have many megabytes", async () => {
    const huge = "ü".repeat(8 * 1024 * 1024)
    const bytes = Buffer.from(`${huge}\nnext\n`)
    const cuts = Array.from({ length: bytes.length / 16_384 }, (_, i) => i * 16_384 + 1)
    expect(await collect(lines(chunksOf(bytes, cuts)))).toEqual([huge, "next"])
  })
})

describe("watchEvents", () => {
  const stream = (text: string): AsyncIterable<Uint8Array> => chunksOf(Buffer.from(text), [])

  test("parses one event per line", async () => {
    const text = '{"type":"ADDED","object":{"metadata":{"name":"a"}}}\n{"type":"BOOKMARK","object":{"metadata":{}}}\n'
    expect((await collect(watchEvents("/p", stream(text)))).map(({ type }) => type)).toEqual(["ADDED", "BOOKMARK"])
  })

  test("throws the Status of an ERROR event", async () => {
    const gone = '{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
    const error: unknown = await collect(watchEvents("/p", stream(gone))).catch((thrown: unknown) => thrown)
    expect(isGone(error)).toBe(true)
  })

  test("throws at an event that was cut off, and does not quote it", async () => {
    const text = '{"type":"ADDED","object":{"data":{"password":"hunter2'
    const error = (await collect(watchEvents("/p", stream(text))).catch((thrown: unknown) => thrown)) as KubeError
    expect(error).toBeInstanceOf(KubeError)
    expect(error.reason).toBe(CLIENT_REASONS.invalidResponse)
    expect(`${error.message} ${String(error.cause)}`).not.toContain("hunter2")
  })
})
