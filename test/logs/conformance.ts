import { randomBytes } from "node:crypto"
import fc from "fast-check"
import { afterEach, beforeEach, describe, expect, it } from "vitest"
import type { LogStore, ReadOptions } from "../../src/logs/store.ts"

const job = { namespace: "project-a", uid: "7d4c0f4e-6c1a-4df0-9f43-2f1a3d1c9b52" }
/** What the suite needs of a kind of store. */
export interface StoreUnderTest {
  /** Another store over the same logs, as a façade that is started again or stands beside the first has it. */
  open: (options?: { capBytes?: number }) => LogStore
  /** Names of everything that is kept, in whatever form. */
  entries: () => Promise<string[]>
  close: () => Promise<void>
}

/** What every LogStore has to fulfil. `make` gives a new, empty one; `runs` is how often properties are tried. */
export function logStoreSuite(make: () => Promise<StoreUnderTest>, runs: number): void {
  let under: StoreUnderTest
  let store: LogStore

  beforeEach(async () => {
    under = await make()
    store = under.open()
  })
  afterEach(() => under.close())

  async function read(options: ReadOptions = {}, from = store): Promise<Buffer> {
    const pieces: Uint8Array[] = []
    for await (const piece of from.read(job, options)) {
      expect(piece.byteLength).toBeGreaterThan(0)
      expect(piece.byteLength).toBeLessThanOrEqual(64 * 1024)
      pieces.push(piece)
    }
    return Buffer.concat(pieces)
  }

  async function write(launch: number, text: string): Promise<void> {
    const length = (await store.append({ job, launch }, 0, new Uint8Array())).length
    await store.append({ job, launch }, length, Buffer.from(text))
  }

  describe("append", () => {
    it("keeps any bytes as they are", async () => {
      const data = randomBytes(300_000)
      for (let offset = 0; offset < data.byteLength; offset += 65_536) {
        await store.append({ job, launch: 1 }, offset, data.subarray(offset, offset + 65_536))
      }
      expect((await read()).equals(data)).toBe(true)
    })

    it("stores each byte once, however pieces overlap, repeat, race or leave gaps", async () => {
      const data = randomBytes(500)
      const offset = fc.nat(5).map((steps) => steps * 60)
      const piece = fc.tuple(offset, fc.integer({ min: 0, max: 200 }))
      await fc.assert(
        fc.asyncProperty(fc.array(piece, { maxLength: 20 }), async (pieces) => {
          await store.remove(job)
          const answers = await Promise.all(
            pieces.map(([offset, size]) =>
              store.append({ job, launch: 1 }, offset, data.subarray(offset, offset + size)),
            ),
          )
          let length = 0
          for (const [index, [offset, size]] of pieces.entries()) {
            if (offset <= length) length = Math.max(length, Math.min(500, offset + size))
            expect(answers[index]).toEqual({ length, full: false })
          }
          expect((await read()).equals(data.subarray(0, length))).toBe(true)
        }),
        { numRuns: runs },
      )
    })

    it("goes on where another store left off", async () => {
      await write(1, "first ")
      const answer = await under.open().append({ job, launch: 1 }, 6, Buffer.from("second"))
      expect(answer).toEqual({ length: 12, full: false })
      expect((await read()).toString()).toBe("first second")
    })

    it("keeps no more than the cap over all launches, and says so once", async () => {
      const small = under.open({ capBytes: 10 })
      expect(await small.append({ job, launch: 1 }, 0, Buffer.from("1234567"))).toEqual({ length: 7, full: false })
      expect(await small.append({ job, launch: 2 }, 0, Buffer.from("abcdef"))).toEqual({ length: 3, full: true })
      expect(await small.append({ job, launch: 2 }, 3, Buffer.from("def"))).toEqual({ length: 3, full: true })
      expect(await small.append({ job, launch: 3 }, 0, Buffer.from("x"))).toEqual({ length: 0, full: true })
      const line = "--- log truncated: only the first 10 bytes of a job's log are kept ---\n"
      expect((await read({}, small)).toString()).toBe(`1234567\n--- launch 2 ---\nabc\n${line}`)
      expect((await read({ tail: 2 }, small)).toString()).toBe(`abc\n${line}`)
    })

    it("refuses names that lead out of its folder, and bad numbers, and writes nothing", async () => {
      for (const bad of ["..", "a/b", "", "../../etc", "a\0b", "A", ".hidden"]) {
        expect(() => store.append({ job: { ...job, namespace: bad }, launch: 1 }, 0, Buffer.from("x"))).toThrow(
          TypeError,
        )
        expect(() => store.append({ job: { ...job, uid: bad }, launch: 1 }, 0, Buffer.from("x"))).toThrow(TypeError)
      }
      expect(() => store.append({ job, launch: 0 }, 0, Buffer.from("x"))).toThrow(RangeError)
      expect(() => store.append({ job, launch: 1 }, -1, Buffer.from("x"))).toThrow(RangeError)
      expect(await under.entries()).toEqual([])
    })
  })

  describe("tail", () => {
    it("is the last lines of the whole, wherever blocks and launches end", async () => {
      const line = fc.string({ maxLength: 40 }).map((text) => text.replaceAll("\n", " "))
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.array(line, { minLength: 1, maxLength: 6 }), { maxLength: 3 }),
          fc.boolean(),
          fc.nat(12),
          async (launches, unfinished, tail) => {
            await store.remove(job)
            for (const [index, lines] of launches.entries()) {
              await write(index + 1, lines.map((text) => `${text}\n`).join("") + (unfinished ? "unfinished" : ""))
            }
            const whole = (await read()).toString()
            const lines = whole.match(/[^\n]*\n|[^\n]+$/g) ?? []
            expect((await read({ tail })).toString()).toBe(tail === 0 ? "" : lines.slice(-tail).join(""))
          },
        ),
        { numRuns: runs },
      )
    })

    it("finds lines that are longer than a block", async () => {
      const long = "x".repeat(200_000)
      await store.append({ job, launch: 1 }, 0, Buffer.from(`a\n${long}\nb`))
      expect((await read({ tail: 2 })).toString()).toBe(`${long}\nb`)
      expect((await read({ tail: 1 })).toString()).toBe("b")
      expect((await read({ tail: 3 })).toString()).toBe(`a\n${long}\nb`)
    })

    it("of nothing is nothing", async () => {
      expect((await read({ tail: 5 })).toString()).toBe("")
    })
  })

  describe("follow", () => {
    it("delivers every byte as it comes, over launches, until it is told to end", async () => {
      const ended = new AbortController()
      const follow = store.read(job, { follow: ended.signal })
      const next = async () => Buffer.from((await follow.next()).value ?? "end").toString()
      const first = next()
      await write(1, "early ")
      expect(await first).toBe("early ")
      await write(1, "late")
      expect(await next()).toBe("late")
      await write(2, "again\n")
      expect(await next()).toBe("\n")
      expect(await next()).toBe("--- launch 2 ---\n")
      expect(await next()).toBe("again\n")
      const last = next()
      // Stored before the end was told, so it must still come.
      await store.append({ job, launch: 2 }, 6, Buffer.from("last"))
      ended.abort()
      expect(await last).toBe("last")
      expect(await next()).toBe("end")
    })

    it("begins with a tail and goes on from there", async () => {
      await write(1, "one\ntwo\nthree\n")
      const ended = new AbortController()
      const follow = store.read(job, { tail: 1, follow: ended.signal })
      expect(Buffer.from((await follow.next()).value ?? "").toString()).toBe("three\n")
      await write(1, "four\n")
      expect(Buffer.from((await follow.next()).value ?? "").toString()).toBe("four\n")
      ended.abort()
      expect((await follow.next()).done).toBe(true)
    })

    it("loses and doubles nothing under many readers and writers", async () => {
      const ended = new AbortController()
      const readers = [1, 2, 3].map(() => read({ follow: ended.signal }))
      let length = 0
      const sent: Buffer[] = []
      for (let index = 0; index < 4 * runs; index++) {
        const data = randomBytes(1 + (index % 700))
        sent.push(data)
        length = (await store.append({ job, launch: 1 }, length, data)).length
      }
      ended.abort()
      for (const reader of readers) expect((await reader).equals(Buffer.concat(sent))).toBe(true)
    })
  })

  describe("remove and list", () => {
    it("knows the jobs it keeps, and forgets one wholly", async () => {
      const other = { namespace: "project-b", uid: "b" }
      await store.append({ job, launch: 1 }, 0, Buffer.from("x"))
      await store.append({ job: other, launch: 1 }, 0, Buffer.from("y"))
      expect(await listed()).toEqual([job, other])
      await store.remove(job)
      await store.remove(job)
      expect(await listed()).toEqual([other])
      expect((await read()).byteLength).toBe(0)
      expect((await under.entries()).filter((entry) => entry.includes(job.uid))).toEqual([])
    })

    async function listed(): Promise<{ namespace: string; uid: string }[]> {
      const jobs: { namespace: string; uid: string }[] = []
      for await (const found of store.list()) jobs.push(found)
      return jobs.sort((a, b) => a.namespace.localeCompare(b.namespace))
    }
  })
}
