import { randomBytes } from "node:crypto"
import fc from "fast-check"
import { afterEach, beforeEach, describe, expect, it } from "vitest"
import type { LogStore, ReadOptions, TimeMark } from "../../src/api/logs/store.ts"

const job = { namespace: "project-a", uid: "7d4c0f4e-6c1a-4df0-9f43-2f1a3d1c9b52" }
/** Store of one kind, as the suite needs it. */
export interface StoreUnderTest {
  /** Opens another store over the same logs, like a restarted façade or a second replica. */
  open: (options?: { capBytes?: number }) => LogStore
  /** Returns the names of all stored entries, in any form. */
  entries: () => Promise<string[]>
  close: () => Promise<void>
}

/**
 * Tests that every LogStore must pass. `make` returns a new, empty store; `runs` is the number of examples per
 * property.
 */
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
    it("stores any bytes unchanged", async () => {
      const data = randomBytes(300_000)
      for (let offset = 0; offset < data.byteLength; offset += 65_536) {
        await store.append({ job, launch: 1 }, offset, data.subarray(offset, offset + 65_536))
      }
      expect((await read()).equals(data)).toBe(true)
    })

    it("stores each byte once, although pieces overlap, repeat, race or leave gaps", async () => {
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
            expect(answers[index]).toEqual({ length })
          }
          expect((await read()).equals(data.subarray(0, length))).toBe(true)
        }),
        { numRuns: runs },
      )
    })

    it("continues where another store has stopped", async () => {
      await write(1, "first ")
      const answer = await under.open().append({ job, launch: 1 }, 6, Buffer.from("second"))
      expect(answer).toEqual({ length: 12 })
      expect((await read()).toString()).toBe("first second")
    })

    it("keeps the beginning and the end of a log beyond the cap, and says how many bytes are left out", async () => {
      const small = under.open({ capBytes: 16 })
      const bytes = Buffer.from("0123456789abcdefghijklmnopqrstuvwxyz!")
      for (const [offset] of bytes.entries()) {
        const answer = await small.append({ job, launch: 1 }, offset, bytes.subarray(offset, offset + 1))
        expect(answer).toEqual({ length: offset + 1 })
      }
      const line =
        "\n--- 21 bytes of the log are left out here: Berth keeps only the beginning and the end of a long log ---\n"
      expect((await read({}, small)).toString()).toBe(`01234567${line}tuvwxyz!`)
      expect((await read({ tail: 1 }, small)).toString()).toBe("tuvwxyz!")
      expect((await read({ tail: 2 }, small)).toString()).toBe(`${line.slice(1)}tuvwxyz!`)
      expect((await read({}, under.open({ capBytes: 16 }))).toString()).toBe(`01234567${line}tuvwxyz!`)
      expect(await small.append({ job, launch: 1 }, 0, bytes)).toEqual({ length: 37 })
    })

    it("counts the cap over all launches", async () => {
      const small = under.open({ capBytes: 8 })
      for (const launch of [1, 2, 3]) {
        const bytes = Buffer.from(`${launch}abcde${launch}\n`)
        for (const [offset] of bytes.entries()) {
          await small.append({ job, launch }, offset, bytes.subarray(offset, offset + 1))
        }
      }
      const gap = (bytes: number) =>
        `--- ${bytes} bytes of the log are left out here: Berth keeps only the beginning and the end of a long log ---\n`
      expect((await read({}, small)).toString()).toBe(
        `1abc\n${gap(4)}--- launch 2 ---\n${gap(8)}--- launch 3 ---\n${gap(4)}de3\n`,
      )
      // The agent of an earlier launch still learns where its log ends.
      expect(await small.append({ job, launch: 2 }, 0, Buffer.from("2abcde2\n"))).toEqual({ length: 8 })
    })

    it("keeps the last bytes of one large piece", async () => {
      const small = under.open({ capBytes: 16 })
      const bytes = Buffer.from("0123456789abcdefghijklmnopqrstuvwxyz!")
      await small.append({ job, launch: 1 }, 0, bytes)
      await small.append({ job, launch: 1 }, bytes.byteLength, Buffer.from("END"))
      expect((await read({}, small)).toString()).toMatch(/END$/)
    })

    it("rejects names outside its folder and invalid numbers, and writes nothing", async () => {
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
    it("returns the last lines of the whole log, at any limits of blocks and launches", async () => {
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

    it("finds lines longer than a block", async () => {
      const long = "x".repeat(200_000)
      await store.append({ job, launch: 1 }, 0, Buffer.from(`a\n${long}\nb`))
      expect((await read({ tail: 2 })).toString()).toBe(`${long}\nb`)
      expect((await read({ tail: 1 })).toString()).toBe("b")
      expect((await read({ tail: 3 })).toString()).toBe(`a\n${long}\nb`)
    })

    it("returns nothing for an empty log", async () => {
      expect((await read({ tail: 5 })).toString()).toBe("")
    })
  })

  describe("follow", () => {
    it("delivers every byte as it arrives, over launches, until it is stopped", async () => {
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
      // Stored before the end was reported, so the follow must still deliver it.
      await store.append({ job, launch: 2 }, 6, Buffer.from("last"))
      ended.abort()
      expect(await last).toBe("last")
      expect(await next()).toBe("end")
    })

    it("starts with a tail and continues from there", async () => {
      await write(1, "one\ntwo\nthree\n")
      const ended = new AbortController()
      const follow = store.read(job, { tail: 1, follow: ended.signal })
      expect(Buffer.from((await follow.next()).value ?? "").toString()).toBe("three\n")
      await write(1, "four\n")
      expect(Buffer.from((await follow.next()).value ?? "").toString()).toBe("four\n")
      ended.abort()
      expect((await follow.next()).done).toBe(true)
    })

    it("delivers to a reader that keeps pace what is left out later", async () => {
      const small = under.open({ capBytes: 16 })
      const ended = new AbortController()
      const follow = small.read(job, { follow: ended.signal })
      const bytes = Buffer.from("0123456789abcdefghijklmnopqrstuvwxyz!")
      let text = ""
      for (const [offset] of bytes.entries()) {
        const next = follow.next()
        await small.append({ job, launch: 1 }, offset, bytes.subarray(offset, offset + 1))
        text += Buffer.from((await next).value ?? "").toString()
      }
      ended.abort()
      expect((await follow.next()).done).toBe(true)
      expect(text).toBe(bytes.toString())
    })

    it("says to a slow reader how many bytes were left out before it could read them", async () => {
      const small = under.open({ capBytes: 16 })
      const bytes = Buffer.from("0123456789abcdefghijklmnopqrstuvwxyz!")
      const ended = new AbortController()
      await small.append({ job, launch: 1 }, 0, bytes.subarray(0, 4))
      const follow = small.read(job, { follow: ended.signal })
      expect(Buffer.from((await follow.next()).value ?? "").toString()).toBe("0123")
      for (const [offset] of bytes.entries()) {
        await small.append({ job, launch: 1 }, offset, bytes.subarray(offset, offset + 1))
      }
      ended.abort()
      let text = ""
      for await (const piece of follow) text += Buffer.from(piece).toString()
      expect(text).toMatch(/^4567\n--- 21 bytes of the log are left out here.* ---\ntuvwxyz!$/)
    })

    it("loses and repeats nothing with many readers and writers", async () => {
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

  describe("timestamps", () => {
    const at = (seconds: number) => Date.parse("2026-01-02T10:00:00.500Z") + 1000 * seconds
    const time = (seconds: number) => new Date(at(seconds)).toISOString()

    it("stand before each line of a stored log, over pieces, launches and stores", async () => {
      const untimed = await read({ timestamps: true })
      expect(untimed.byteLength).toBe(0)
      await store.append({ job, launch: 1 }, 0, Buffer.from("a\nb"), [
        { offset: 0, time: at(0) },
        { offset: 2, time: at(1) },
      ])
      await store.append({ job, launch: 1 }, 3, Buffer.from("b\n\nc"), [{ offset: 3, time: at(2) }])
      await under.open().append({ job, launch: 2 }, 0, Buffer.from("d\ne\nf\n"), [
        { offset: 0, time: at(60) },
        { offset: 4, time: at(70) },
      ])
      // The line is as old as its first byte.
      const lines = [
        `${time(0)} a\n${time(1)} bb\n${time(2)} \n${time(2)} c\n`,
        `${time(2)} --- launch 2 ---\n${time(60)} d\n${time(60)} e\n${time(70)} f\n`,
      ]
      expect((await read({ timestamps: true })).toString()).toBe(lines.join(""))
      expect((await read({ timestamps: true, tail: 2 }, under.open())).toString()).toBe(
        `${time(60)} e\n${time(70)} f\n`,
      )
      expect((await read()).toString()).toBe("a\nbb\n\nc\n--- launch 2 ---\nd\ne\nf\n")
    })

    it("are - before lines without a known time", async () => {
      await store.append({ job, launch: 1 }, 0, Buffer.from("a\nb\n"))
      await store.append({ job, launch: 1 }, 4, Buffer.from("c\n"), [{ offset: 4, time: at(0) }])
      expect((await read({ timestamps: true })).toString()).toBe(`- a\n- b\n${time(0)} c\n`)
    })

    it("are those of the marks, wherever pieces, blocks, the cap and a tail cut the log", async () => {
      const size = fc.integer({ min: 5, max: 40 })
      await fc.assert(
        fc.asyncProperty(
          fc.nat(60),
          fc.array(fc.tuple(size, fc.nat(9)), { maxLength: 20 }),
          fc.array(size, { minLength: 1, maxLength: 5 }),
          fc.constantFrom(32, 200, 100_000),
          fc.nat(10),
          async (count, waits, sizes, capBytes, tail) => {
            await store.remove(job)
            const bounded = under.open({ capBytes })
            // The number of a line says where it begins.
            const all = Buffer.from(
              Array.from({ length: count }, (_, index) => `${String(index).padStart(7, "0")}\n`).join(""),
            )
            const marks = marksAfter(waits)
            await appendInPieces(bounded, all, sizes, marks)
            const plain = (await read({}, bounded)).toString()
            const stamped = (await read({ timestamps: true }, bounded)).toString()
            expect(stamped.replaceAll(/^\S+ /gm, "")).toBe(plain)
            for (const [, shown, number] of stamped.matchAll(/^(\S+) (\d{7})$/gm))
              expect(shown).toBe(new Date(timeAt(marks, Number(number) * 8)).toISOString())
            const lines = stamped.match(/[^\n]*\n|[^\n]+$/g) ?? []
            const last = (await read({ timestamps: true, tail }, bounded)).toString()
            expect(last).toBe(tail === 0 ? "" : lines.slice(-tail).join(""))
          },
        ),
        { numRuns: runs },
      )
    })

    /** Returns marks, each some bytes and seconds after the one before. */
    function marksAfter(waits: readonly [bytes: number, seconds: number][]): TimeMark[] {
      const marks = [{ offset: 0, time: at(0) }]
      for (const [bytes, seconds] of waits) {
        const { offset, time: before } = marks.at(-1) ?? { offset: 0, time: 0 }
        marks.push({ offset: offset + bytes, time: before + 1000 * seconds })
      }
      return marks
    }

    function timeAt(marks: readonly TimeMark[], offset: number): number {
      return marks.findLast((mark) => mark.offset <= offset)?.time ?? 0
    }

    /** Appends as an agent does: each piece comes with the mark in effect at its start, and those within it. */
    async function appendInPieces(to: LogStore, all: Buffer, sizes: readonly number[], marks: readonly TimeMark[]) {
      let from = 0
      for (let piece = 0; from < all.length; piece++) {
        const end = Math.min(all.length, from + (sizes[piece % sizes.length] ?? 1))
        const within = marks.filter(({ offset }) => offset > from && offset < end)
        const first = { offset: from, time: timeAt(marks, from) }
        await to.append({ job, launch: 1 }, from, all.subarray(from, end), [first, ...within])
        from = end
      }
    }

    it("arrive with the lines of a follow", async () => {
      const ended = new AbortController()
      const follow = store.read(job, { follow: ended.signal, timestamps: true })
      const next = async () => Buffer.from((await follow.next()).value ?? "end").toString()
      const first = next()
      await store.append({ job, launch: 1 }, 0, Buffer.from("a\nb"), [{ offset: 0, time: at(0) }])
      expect(await first).toBe(`${time(0)} a\n${time(0)} b`)
      await store.append({ job, launch: 1 }, 3, Buffer.from("b\nc\n"), [{ offset: 3, time: at(5) }])
      expect(await next()).toBe(`b\n${time(5)} c\n`)
      ended.abort()
      expect(await next()).toBe("end")
    })

    it("are removed with the log", async () => {
      await store.append({ job, launch: 1 }, 0, Buffer.from("a\n"), [{ offset: 0, time: at(0) }])
      await store.remove(job)
      expect((await under.entries()).filter((entry) => entry.includes(job.uid))).toEqual([])
    })
  })

  describe("remove and list", () => {
    it("lists the jobs with logs, and deletes all of a job's log", async () => {
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
