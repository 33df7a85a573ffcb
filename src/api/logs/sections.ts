import { onAborted } from "../../core/apis/abort.ts"
import { BLOCK_BYTES, type JobRef, type ReadOptions, type TimeMark } from "./store.ts"
import { LineTimes } from "./times.ts"

const NEWLINE = 0x0a

/** Bytes from `start` up to `end` of a Launch's log. */
export interface Range {
  start: number
  end: number
}

/** The stored log of one Launch. It grows at its end. Bytes in its middle may be left out later. */
export interface LaunchLog {
  launch: number
  /** Kept bytes, in order. The bytes between two ranges were left out. */
  kept: Range[]
  /** Number of bytes that were stored, with those that were left out. */
  length: number
  /**
   * Yields the bytes from `start` up to `end`, which are within one kept range, in pieces of at most BLOCK_BYTES. Fewer
   * bytes if they are being removed.
   */
  read(start: number, end: number): AsyncGenerator<Buffer, void, void>
  /** Returns the marks of the bytes from `start` up to `end`, which are within one kept range. The first may be earlier. */
  marks(start: number, end: number): Promise<TimeMark[]>
}

/** Access to the stored logs of one Job. */
export interface LogSource {
  /** Returns the stored logs, oldest Launch first. */
  logs(): Promise<LaunchLog[]>
  /** Resolves when there may be more bytes, or when the signal is aborted. */
  nextAppend(until: AbortSignal): Disposable & { promise: Promise<void> }
}

/** A position in a Job's log: the Launch, and the number of its bytes before this position. */
interface Position {
  launch: number
  offset: number
}

/** A part of a Job's log as it is read: kept bytes, or a line that Berth adds. */
interface Part {
  /** Position after this part. */
  next: Position
  size: number
  read(start: number, end: number): AsyncIterable<Buffer>
  marks(start: number, end: number): Promise<TimeMark[]>
}

const START: Position = { launch: 0, offset: 0 }

/** Maximum number of consecutive reads without a byte, while bytes are being removed. */
const READ_TRIES = 5

/** Yields a Job's log as one, in order, with a line between two Launches, for `LogStore.read`. */
export async function* readLogs(source: LogSource, options: ReadOptions): AsyncGenerator<Uint8Array, void, void> {
  if (options.tail !== undefined) assertIndex("tail", options.tail, 0)
  const until = options.follow ?? AbortSignal.abort()
  const times = options.timestamps === true ? new LineTimes() : undefined
  let position: Position | undefined
  for (let tries = 0; tries < READ_TRIES; ) {
    // Subscribe before the logs are read, so that no append is missed in between.
    using wake = source.nextAppend(until)
    const last = until.aborted
    const logs = await source.logs()
    const { parts, skip } = await unreadParts(logs, position, options.tail)
    const read = yield* bytesOf(parts, skip, { position: position ?? START, times })
    position = read.position
    tries = read.isComplete || read.bytes > 0 ? 0 : tries + 1
    // Otherwise bytes were left out during this read. The next one reports the gap.
    if (!read.isComplete) continue
    if (last) return
    await wake.promise
  }
}

/** Yields the bytes of the parts. Stops at the first byte that was removed. */
async function* bytesOf(
  parts: Part[],
  skip: number,
  { position, times }: { position: Position; times: LineTimes | undefined },
): AsyncGenerator<Buffer, { position: Position; isComplete: boolean; bytes: number }, void> {
  let bytes = 0
  for (const [index, { next, size, read, marks }] of parts.entries()) {
    let at = index === 0 ? skip : 0
    times?.begin(await marks(at, size))
    for await (const piece of read(at, size)) {
      if (times === undefined) yield piece
      else yield* times.of(piece, next.offset - size + at)
      at += piece.byteLength
      bytes += piece.byteLength
    }
    if (at < size) return { position: { ...next, offset: next.offset - size + at }, isComplete: false, bytes }
    position = next
  }
  return { position, isComplete: true, bytes }
}

/** Returns the parts after the position, or at the start the last lines. `skip` bytes of the first one are read. */
async function unreadParts(
  logs: LaunchLog[],
  position: Position | undefined,
  tail: number | undefined,
): Promise<{ parts: Part[]; skip: number }> {
  const parts = await partsOf(logs, position ?? START)
  if (position !== undefined || tail === undefined) return { parts, skip: 0 }
  const { index, skip } = await tailOf(parts, tail)
  return { parts: parts.slice(index), skip }
}

/** Returns the line in place of bytes that were left out. */
export function gapLine(bytes: number): string {
  return `--- ${bytes} bytes of the log are left out here: Berth keeps only the beginning and the end of a long log ---\n`
}

/** Readers that wait for the next append of a Job in this process. */
export class Followers {
  readonly #waiting = new Map<string, Set<() => void>>()

  /** Wakes the readers of a Job after an append. */
  wake(job: JobRef): void {
    for (const wake of this.#waiting.get(keyOf(job)) ?? []) wake()
  }

  /** Resolves at the Job's next append in this process, after `pollMs`, or when `until` is aborted. */
  next(job: JobRef, until: AbortSignal, pollMs?: number): Disposable & { promise: Promise<void> } {
    const key = keyOf(job)
    const { promise, resolve } = Promise.withResolvers<void>()
    const wake = (): void => resolve()
    const waiting = this.#waiting.get(key) ?? new Set()
    this.#waiting.set(key, waiting.add(wake))
    const ignore = onAborted(until, wake)
    const timer = pollMs === undefined || until.aborted ? undefined : setTimeout(wake, pollMs)
    return {
      promise,
      [Symbol.dispose]: () => {
        clearTimeout(timer)
        ignore()
        waiting.delete(wake)
        if (waiting.size === 0 && this.#waiting.get(key) === waiting) this.#waiting.delete(key)
      },
    }
  }
}

/** Runs the writes of one Job one after the other. */
export class Serial {
  readonly #last = new Map<string, Promise<unknown>>()

  async run<Result>(job: JobRef, write: () => Promise<Result>): Promise<Result> {
    const key = keyOf(job)
    const before = this.#last.get(key)
    const run = (async () => {
      // The caller of a failed write has its error already.
      await before?.catch(() => undefined)
      return await write()
    })()
    this.#last.set(key, run)
    try {
      return await run
    } finally {
      if (this.#last.get(key) === run) this.#last.delete(key)
    }
  }
}

function keyOf({ namespace, uid }: JobRef): string {
  return `${namespace}/${uid}`
}

/** Returns the names, which are safe in paths and keys if they are valid in Kubernetes. Throws TypeError for others. */
export function logPath(job: JobRef): { namespace: string; uid: string } {
  return { namespace: safeName("namespace", job.namespace), uid: safeName("uid", job.uid) }
}

function safeName(what: string, name: string): string {
  if (/^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/.test(name)) return name
  throw new TypeError(`log ${what} ${JSON.stringify(name)} is not a Kubernetes name (a-z, 0-9, - and . only)`)
}

/** Throws RangeError if the value is not a whole number of at least `least`. */
export function assertIndex(what: string, value: number, least: number): void {
  if (Number.isSafeInteger(value) && value >= least) return
  throw new RangeError(`log ${what} is ${value}; give a whole number of at least ${least}`)
}

/** Returns all parts of a Job's log after the position. */
async function partsOf(logs: LaunchLog[], from: Position): Promise<Part[]> {
  const parts: Part[] = []
  for (const [index, log] of logs.entries()) {
    if (log.launch < from.launch) continue
    const isNew = log.launch > from.launch
    const previous = logs[index - 1]
    if (isNew && previous !== undefined) {
      const { launch, length } = previous
      if (!(await endsLine(previous))) parts.push(lineOf("\n", { launch, offset: length }, previous))
      parts.push(lineOf(`--- launch ${log.launch} ---\n`, { launch: log.launch, offset: 0 }, previous))
    }
    parts.push(...(await partsOfLaunch(log, isNew ? 0 : from.offset)))
  }
  return parts
}

async function partsOfLaunch(log: LaunchLog, from: number): Promise<Part[]> {
  const { launch, length } = log
  const parts: Part[] = []
  let at = from
  const skipTo = async (offset: number): Promise<void> => {
    if (offset <= at) return
    const newline = (await endsLine(log, at)) ? "" : "\n"
    parts.push(lineOf(newline + gapLine(offset - at), { launch, offset }, log))
    at = offset
  }
  for (const { start, end } of log.kept) {
    if (end <= at) continue
    await skipTo(start)
    parts.push(partOf(log, { start: at, end }))
    at = end
  }
  await skipTo(length)
  return parts
}

function partOf({ launch, read, marks }: LaunchLog, { start, end }: Range): Part {
  return {
    next: { launch, offset: end },
    size: end - start,
    read: (from, to) => read(start + from, start + to),
    marks: (from, to) => marks(start + from, start + to),
  }
}

/** @param before log before the line, whose last known time the line gets */
function lineOf(line: string, next: Position, before: LaunchLog): Part {
  const bytes = Buffer.from(line)
  async function* read(start: number, end: number): AsyncGenerator<Buffer> {
    if (start < end) yield bytes.subarray(start, end)
  }
  const at = before.launch === next.launch ? next.offset : before.length
  return { next, size: bytes.byteLength, read, marks: () => timeBefore(before, at) }
}

/** Returns the time of the last kept byte before an offset, as a mark of all that follows. */
async function timeBefore({ kept, marks }: LaunchLog, offset: number): Promise<TimeMark[]> {
  const range = kept.findLast(({ start }) => start < offset)
  if (range === undefined) return []
  const end = Math.min(range.end, offset)
  return (await marks(end - 1, end)).slice(-1).map(({ time }) => ({ time, offset: Number.NEGATIVE_INFINITY }))
}

/** Returns the start of the last `lines` lines, found by reading backwards from the end. */
async function tailOf(parts: Part[], lines: number): Promise<{ index: number; skip: number }> {
  if (lines === 0) return { index: Math.max(0, parts.length - 1), skip: parts.at(-1)?.size ?? 0 }
  let wanted = lines
  let atEnd = true
  for await (const { index, start, block } of blocksBackwards(parts)) {
    // The newline that ends the last line does not begin another one.
    let at = atEnd && block.at(-1) === NEWLINE ? block.byteLength - 1 : block.byteLength
    atEnd = false
    for (at = newlineBefore(block, at); at >= 0; at = newlineBefore(block, at)) {
      if (--wanted === 0) return { index, skip: start + at + 1 }
    }
  }
  return { index: 0, skip: 0 }
}

async function* blocksBackwards(parts: Part[]): AsyncGenerator<{ index: number; start: number; block: Buffer }> {
  for (const [index, part] of [...parts.entries()].reverse()) {
    for (let end = part.size; end > 0; end = Math.max(0, end - BLOCK_BYTES)) {
      const start = Math.max(0, end - BLOCK_BYTES)
      const pieces: Buffer[] = []
      for await (const piece of part.read(start, end)) pieces.push(piece)
      yield { index, start, block: Buffer.concat(pieces) }
    }
  }
}

function newlineBefore(block: Buffer, at: number): number {
  return at === 0 ? -1 : block.lastIndexOf(NEWLINE, at - 1)
}

/** Returns true if the byte before `at` ends a line, also if it was left out: a line of Berth's is in its place. */
async function endsLine(log: LaunchLog, at: number = log.length): Promise<boolean> {
  if (!log.kept.some(({ start, end }) => start < at && at <= end)) return true
  let last: number | undefined
  for await (const piece of log.read(at - 1, at)) last = piece.at(-1)
  return last === NEWLINE
}
