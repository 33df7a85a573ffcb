import type { JobRef, ReadOptions } from "./store.ts"

/** Bytes read at once, and so the largest piece that a reader gets. */
export const BLOCK_BYTES = 64 * 1024

const NEWLINE = 0x0a

/** The log of one Launch as it is kept. It only ever grows at its end. */
export interface LaunchLog {
  launch: number
  /** Bytes. */
  size: number
  /** The log has reached its cap. */
  truncated: boolean
  /** The bytes from `start` up to `end`, in pieces of at most BLOCK_BYTES; fewer when it is being removed. */
  read(start: number, end: number): AsyncGenerator<Buffer, void, void>
}

/** What a store knows of one Job, for reading its log. */
export interface LogSource {
  /** What is kept now, oldest Launch first. */
  logs(): Promise<LaunchLog[]>
  /** Resolves when there may be more, or when the signal is aborted. */
  nextAppend(until: AbortSignal): Disposable & { promise: Promise<void> }
  /** The line that ends a log at its cap. */
  truncationLine: string
}

/** The log of one Launch as it is read: its bytes between lines of our own. */
interface Section {
  header: Buffer
  log: LaunchLog
  footer: Buffer
}

/** A place in a Job's log: `offset` bytes into one of its sections. */
interface Position {
  section: number
  offset: number
}

/** A Job's log as one, in order, with a line of our own between two Launches: what `LogStore.read` gives. */
export async function* readLogs(source: LogSource, options: ReadOptions): AsyncGenerator<Uint8Array, void, void> {
  if (options.tail !== undefined) assertIndex("tail", options.tail, 0)
  const until = options.follow ?? AbortSignal.abort()
  let position: Position | undefined
  for (;;) {
    // Taken before the logs are looked at, so that no append falls in between.
    using wake = source.nextAppend(until)
    const last = until.aborted
    const sections = await sectionsOf(source)
    position ??= options.tail === undefined ? { section: 0, offset: 0 } : await tailOf(sections, options.tail)
    for (; position.section < sections.length; position = { section: position.section + 1, offset: 0 }) {
      const section = sections[position.section] as Section
      const end = lengthOf(section)
      yield* bytesOf(section, position.offset, end)
      position = { section: position.section, offset: Math.max(position.offset, end) }
      if (position.section === sections.length - 1) break
    }
    if (last) return
    await wake.promise
  }
}

/** The line that stands at the end of a Job's log when no more of it is kept. */
export function truncationLine(capBytes: number): string {
  return `--- log truncated: only the first ${capBytes} bytes of a job's log are kept ---\n`
}

/** Those who wait for the next append of a Job in this very process. */
export class Followers {
  readonly #waiting = new Map<string, Set<() => void>>()

  /** Something of the Job was appended. */
  wake(job: JobRef): void {
    for (const wake of this.#waiting.get(keyOf(job)) ?? []) wake()
  }

  /** Resolves at the Job's next append here, after `pollMs`, or when `until` is aborted. */
  next(job: JobRef, until: AbortSignal, pollMs?: number): Disposable & { promise: Promise<void> } {
    const key = keyOf(job)
    const { promise, resolve } = Promise.withResolvers<void>()
    const wake = (): void => resolve()
    const waiting = this.#waiting.get(key) ?? new Set()
    this.#waiting.set(key, waiting.add(wake))
    if (until.aborted) wake()
    until.addEventListener("abort", wake, { once: true })
    const timer = pollMs === undefined || until.aborted ? undefined : setTimeout(wake, pollMs)
    return {
      promise,
      [Symbol.dispose]: () => {
        clearTimeout(timer)
        until.removeEventListener("abort", wake)
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
      // A failed write has told its own caller.
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

/** Kubernetes' own names are safe in paths and keys; anything else would lead elsewhere. Throws TypeError. */
export function pathOf(job: JobRef): { namespace: string; uid: string } {
  return { namespace: safeName("namespace", job.namespace), uid: safeName("uid", job.uid) }
}

function safeName(what: string, name: string): string {
  if (/^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/.test(name)) return name
  throw new TypeError(`log ${what} ${JSON.stringify(name)} is not a Kubernetes name (a-z, 0-9, - and . only)`)
}

/** Throws RangeError unless it is a whole number of at least `least`. */
export function assertIndex(what: string, value: number, least: number): void {
  if (Number.isSafeInteger(value) && value >= least) return
  throw new RangeError(`log ${what} is ${value}; give a whole number of at least ${least}`)
}

async function sectionsOf({ logs, truncationLine: line }: LogSource): Promise<Section[]> {
  const found = await logs()
  return await Promise.all(
    found.map(async (log, index) => {
      const header = Buffer.from(index === 0 ? "" : `--- launch ${log.launch} ---\n`)
      const closed = log.truncated || index < found.length - 1
      // A line of ours begins a new line; an unfinished one stays as it is only at the very end.
      const newline = closed && !(await endsLine(log)) ? "\n" : ""
      return { header, log, footer: Buffer.from(newline + (log.truncated ? line : "")) }
    }),
  )
}

function lengthOf({ header, log, footer }: Section): number {
  return header.byteLength + log.size + footer.byteLength
}

/** The bytes from `start` to `end` of a section, in pieces of at most BLOCK_BYTES. */
async function* bytesOf(section: Section, start: number, end: number): AsyncGenerator<Buffer, void, void> {
  const logStart = section.header.byteLength
  const logEnd = logStart + section.log.size
  if (start < logStart) yield section.header.subarray(start, end)
  if (start < logEnd && end > logStart) {
    yield* section.log.read(Math.max(0, start - logStart), Math.min(end, logEnd) - logStart)
  }
  if (end > logEnd && start < end) {
    const footer = section.footer.subarray(Math.max(0, start - logEnd), end - logEnd)
    if (footer.byteLength > 0) yield footer
  }
}

/** Where the last `lines` lines begin, found by reading backwards from the end. */
async function tailOf(sections: Section[], lines: number): Promise<Position> {
  const last = sections.at(-1)
  if (last === undefined) return { section: 0, offset: 0 }
  if (lines === 0) return { section: sections.length - 1, offset: lengthOf(last) }
  let wanted = lines
  let atEnd = true
  for await (const { section, start, block } of blocksBackwards(sections)) {
    // The newline that ends the last line begins no further one.
    let at = atEnd && block.at(-1) === NEWLINE ? block.byteLength - 1 : block.byteLength
    atEnd = false
    for (at = newlineBefore(block, at); at >= 0; at = newlineBefore(block, at)) {
      if (--wanted === 0) return { section, offset: start + at + 1 }
    }
  }
  return { section: 0, offset: 0 }
}

async function* blocksBackwards(
  sections: Section[],
): AsyncGenerator<{ section: number; start: number; block: Buffer }> {
  for (const [index, section] of [...sections.entries()].reverse()) {
    for (let end = lengthOf(section); end > 0; end = Math.max(0, end - BLOCK_BYTES)) {
      const start = Math.max(0, end - BLOCK_BYTES)
      const pieces: Buffer[] = []
      for await (const piece of bytesOf(section, start, end)) pieces.push(piece)
      yield { section: index, start, block: Buffer.concat(pieces) }
    }
  }
}

function newlineBefore(block: Buffer, at: number): number {
  return at === 0 ? -1 : block.lastIndexOf(NEWLINE, at - 1)
}

async function endsLine(log: LaunchLog): Promise<boolean> {
  if (log.size === 0) return true
  let last: number | undefined
  for await (const piece of log.read(log.size - 1, log.size)) last = piece.at(-1)
  return last === NEWLINE
}
