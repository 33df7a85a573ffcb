import { signal, useSignal } from "@preact/signals"
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks"
import { useLocation } from "preact-iso/router"
import type { JobRecord } from "../../client/client.ts"
import { isEnded } from "../../client/jobs.ts"
import { readLog } from "../../client/logs.ts"
import { bytes, count } from "../format.ts"
import { LogBuffer } from "../log-buffer.ts"
import { type LineRange, rangeOf, rangeText } from "../log-links.ts"
import { LogRows, ROW_HEIGHT, RowWindow } from "../log-rows.ts"
import { TIME_LETTERS, TimedLines } from "../log-times.ts"
import { at, client } from "../state.ts"
import { Copy, onText } from "./basics.tsx"
import { Empty, Fault } from "./load.tsx"
import { LogLine } from "./log-line.tsx"
import { saveFile } from "./save.ts"

type ReadState = "reading" | "cut" | "complete"

/** Setting of the reader that stays in this browser: times before the lines. */
const isTimed = signal(localStorage.getItem("log-times") === "true")
isTimed.subscribe((value) => localStorage.setItem("log-times", String(value)))

/** A log as far as it is read. */
interface ReadLog {
  buffer: LogBuffer
  /** Absent: the log is read without times. */
  lines: TimedLines | undefined
  /** Bytes from the API, with those of the times. */
  received: number
}

function emptyLog(): ReadLog {
  return { buffer: new LogBuffer(), lines: isTimed.value ? new TimedLines() : undefined, received: 0 }
}

/**
 * Reads the log of a job into memory, and again when the setting for times changes. `version` changes with each piece.
 */
function useLog({ id, ended_at }: JobRecord) {
  const log = useSignal(useMemo(emptyLog, []))
  const version = useSignal(0)
  const state = useSignal<ReadState>("reading")
  const error = useSignal<unknown>(undefined)
  const attempt = useSignal(0)
  useEffect(() => {
    const stop = new AbortController()
    const { signal } = stop
    const timestamps = isTimed.value
    const next = (log.value.lines !== undefined) === timestamps ? log.value : emptyLog()
    let frame = 0
    const show = (): void => {
      frame ||= requestAnimationFrame(() => {
        frame = 0
        // Until then the log stays as it was read before.
        if (next.buffer.length >= log.value.buffer.length || state.value === "complete") log.value = next
        version.value++
      })
    }
    const read = async (): Promise<void> => {
      // A second try begins where the first one ended.
      let known = next.received
      const onReconnect = (): void => {
        state.value = "cut"
      }
      const options = { follow: ended_at === null, timestamps, signal, onReconnect }
      for await (const piece of readLog(client.value, id, options)) {
        const fresh = piece.subarray(Math.min(known, piece.length))
        known -= piece.length - fresh.length
        next.received += fresh.length
        next.buffer.append(next.lines?.of(fresh) ?? fresh)
        state.value = "reading"
        show()
      }
      state.value = "complete"
      show()
    }
    error.value = undefined
    state.value = "reading"
    read().catch((fault: unknown) => {
      if (!signal.aborted) error.value = fault
    })
    return () => {
      stop.abort()
      cancelAnimationFrame(frame)
    }
  }, [id, attempt.value, isTimed.value])
  return {
    buffer: log.value.buffer,
    times: log.value.lines?.times,
    version,
    state,
    error,
    retry: () => {
      attempt.value++
    },
  }
}

/** Lines that the address names, and how to name others. */
function useLink({ name }: JobRecord) {
  const { url, route } = useLocation()
  const text = new URL(url, location.origin).searchParams.get("line")
  const lines = useMemo(() => rangeOf(text), [text])
  const addressOf = (range: LineRange): string =>
    at(`/jobs/${encodeURIComponent(name)}?tab=log&line=${rangeText(range)}`)
  return { lines, addressOf, name: (range: LineRange): void => route(addressOf(range), true) }
}

type Link = ReturnType<typeof useLink>

/** Log of a job: it follows, finds, wraps, links, and shows only the lines that are in sight. */
export function LogViewer({ job }: { job: JobRecord }) {
  const log = useLog(job)
  const link = useLink(job)
  const isWrapped = useSignal(true)
  const isFollowing = useSignal(link.lines === undefined)
  const found = useFind(log.buffer, log.version.value)
  const { buffer, times, version, state, error } = log
  const isEmpty = buffer.lineCount === 0
  return (
    <section class="log" aria-label="Log" data-version={version.value} data-state={state.value}>
      <div class="log-bar">
        <FindBar
          found={found}
          leaveEnd={() => {
            isFollowing.value = false
          }}
        />
        <LineField link={link} lineCount={buffer.lineCount} state={state.value} isLive={!isEnded(job)} />
        <Toggle of={isFollowing}>Follow</Toggle>
        <Toggle of={isWrapped}>Wrap</Toggle>
        <Toggle of={isTimed}>Times</Toggle>
        <button type="button" class="small" disabled={isEmpty} onClick={() => void download(job, log)}>
          Download
        </button>
        <span class="minor log-size">
          {count(buffer.lineCount)} lines, {bytes(buffer.length)}
          {{ reading: isEnded(job) ? ", reading" : ", live", cut: ", reconnecting", complete: "" }[state.value]}
        </span>
      </div>
      {error.value !== undefined && <Fault error={error.value} retry={log.retry} />}
      {isEmpty && error.value === undefined && <NoOutput job={job} state={state.value} />}
      {!isEmpty && (
        <Lines
          buffer={buffer}
          times={times}
          isWrapped={isWrapped.value}
          isFollowing={isFollowing}
          found={found}
          link={link}
        />
      )}
    </section>
  )
}

function Toggle({ of, children }: { of: { value: boolean }; children: string }) {
  return (
    <label class="toggle">
      <input
        type="checkbox"
        checked={of.value}
        onChange={({ currentTarget }) => {
          of.value = currentTarget.checked
        }}
      />
      {children}
    </label>
  )
}

interface LineFieldProps {
  link: Link
  lineCount: number
  state: ReadState
  isLive: boolean
}

/** Field for the lines to show. The address names them then, so it is a link to them. */
function LineField({ link, lineCount, state, isLive }: LineFieldProps) {
  const { lines } = link
  const text = useSignal("")
  useEffect(() => {
    text.value = lines === undefined ? "" : rangeText(lines)
  }, [lines])
  const isBeyond = lines !== undefined && lines.from >= lineCount && (state === "complete" || isLive)
  return (
    <form
      class="find line"
      onSubmit={(event) => {
        event.preventDefault()
        const range = rangeOf(text.value)
        if (range !== undefined) link.name(range)
      }}
    >
      <input
        aria-label="Go to line"
        placeholder="Line"
        pattern="[1-9]\d*(-[1-9]\d*)?"
        title="12 or 10-20"
        value={text.value}
        onInput={onText((value) => {
          text.value = value
        })}
      />
      {lines !== undefined && <Copy text={location.origin + link.addressOf(lines)} label="Copy link" />}
      {isBeyond && (
        <span role="status">
          The log has {count(lineCount)} lines{state === "complete" ? "" : " so far"}.
        </span>
      )}
    </form>
  )
}

function NoOutput({ job, state }: { job: JobRecord; state: ReadState }) {
  if (state === "complete" || isEnded(job)) return <Empty title="The job wrote nothing." />
  const text = job.status === "running" ? "The job has written nothing yet." : "The container has not started yet."
  return <Empty title={`${text} Its output appears here.`} />
}

async function download(job: JobRecord, { buffer, state }: ReturnType<typeof useLog>): Promise<void> {
  const pieces: Uint8Array<ArrayBuffer>[] = []
  if (state.value === "complete") pieces.push(buffer.content())
  else for await (const piece of readLog(client.value, job.id, { follow: false })) pieces.push(new Uint8Array(piece))
  saveFile(`${job.name}.log`, pieces, "text/plain")
}

/** Lines that one step of a search reads. In between, the page answers the reader. */
const STEP_LINES = 5000
const MOST_MATCHES = 10_000

/** Lines that have the text that the reader looks for. */
function useFind(buffer: LogBuffer, version: number) {
  const text = useSignal("")
  const lines = useSignal<readonly number[]>([])
  /** Place in `lines`; -1 before the first step. */
  const current = useSignal(-1)
  const searched = useRef(0)
  useEffect(() => {
    lines.value = []
    current.value = -1
    searched.current = 0
  }, [text.value])
  const add = (matches: readonly number[]): void => {
    lines.value = [...new Set([...lines.value, ...matches])].slice(0, MOST_MATCHES)
    if (current.value < 0) current.value = 0
  }
  useEffect(() => {
    if (text.value === "") return
    let timer: ReturnType<typeof setTimeout>
    const step = (): void => {
      const from = searched.current
      const to = Math.min(buffer.lineCount, from + STEP_LINES)
      if (lines.value.length >= MOST_MATCHES) return
      const matches = buffer.find(text.value, { from, to })
      // The last line may still grow.
      searched.current = Math.max(from, to === buffer.lineCount ? to - 1 : to)
      if (matches.length > 0) add(matches)
      if (to < buffer.lineCount) timer = setTimeout(step)
    }
    timer = setTimeout(step)
    return () => clearTimeout(timer)
  }, [text.value, version])
  const go = (by: number): void => {
    const { length } = lines.value
    if (length > 0) current.value = (current.value + by + length) % length
  }
  return { text, lines, current, go }
}

type Found = ReturnType<typeof useFind>

function FindBar({ found, leaveEnd }: { found: Found; leaveEnd: () => void }) {
  const { text, lines, current, go } = found
  const step = (by: number): void => {
    leaveEnd()
    go(by)
  }
  return (
    <div class="find" role="search" aria-label="Find in the log">
      <input
        type="search"
        aria-label="Find in the log"
        placeholder="Find"
        value={text.value}
        onInput={onText((value) => {
          leaveEnd()
          text.value = value
        })}
        onKeyDown={(event) => {
          if (event.key !== "Enter") return
          event.preventDefault()
          step(event.shiftKey ? -1 : 1)
        }}
      />
      {text.value !== "" && (
        <>
          <span class="minor" role="status">
            {lines.value.length === 0
              ? "no match"
              : `${count(current.value + 1)} of ${count(lines.value.length)}${lines.value.length === MOST_MATCHES ? "+" : ""}`}
          </span>
          <button type="button" class="small" aria-label="Previous match" onClick={() => step(-1)}>
            ↑
          </button>
          <button type="button" class="small" aria-label="Next match" onClick={() => step(1)}>
            ↓
          </button>
        </>
      )}
    </div>
  )
}

/** Rows above and below the window that are kept ready. */
const SPARE_ROWS = 15

interface LinesProps {
  buffer: LogBuffer
  times: readonly number[] | undefined
  isWrapped: boolean
  isFollowing: { value: boolean }
  found: Found
  link: Link
}

/** Rows above a line that is shown. */
const ROWS_ABOVE = 4

/** Window over the lines. */
function Lines({ buffer, times, isWrapped, isFollowing, found, link }: LinesProps) {
  const frame = useRef<HTMLDivElement>(null)
  const size = useSize(frame)
  const digits = Math.max(3, String(buffer.lineCount).length)
  const before = digits + 2 + (times === undefined ? 0 : TIME_LETTERS + 1)
  const columns = isWrapped ? Math.max(20, Math.floor(size.width / size.letter) - before) : undefined
  const rows = useMemo(() => new LogRows(buffer, columns), [buffer, columns])
  const view = new RowWindow(rows.count, size.height)
  const { top, show, onScroll } = usePlace(frame, { rows, view, isFollowing })
  const line = found.lines.value[found.current.value]
  useLayoutEffect(() => show(line), [line])
  const linked = link.lines
  const isLinkedRead = linked !== undefined && linked.from < buffer.lineCount
  useLayoutEffect(() => {
    if (!isLinkedRead) return
    isFollowing.value = false
    show(linked.from)
  }, [linked, isLinkedRead])
  const first = rows.lineAt(Math.max(0, top.value - SPARE_ROWS))
  const last = rows.lineAt(top.value + size.height / ROW_HEIGHT + SPARE_ROWS)
  const offset =
    (frame.current === null ? 0 : view.scrolledTo(top.value)) - (top.value - rows.rowOf(first)) * ROW_HEIGHT
  return (
    <div
      ref={frame}
      class={isWrapped ? "log-lines wrapped" : "log-lines"}
      tabIndex={0}
      role="region"
      aria-label="Lines of the log"
      onScroll={onScroll}
    >
      <div style={{ height: `${view.height}px`, width: isWrapped ? "100%" : `${buffer.longest + before}ch` }}>
        <div
          class="log-window"
          style={{
            transform: `translateY(${offset}px)`,
            "--digits": `${digits}ch`,
            "--columns": `${columns ?? buffer.longest}ch`,
          }}
        >
          {Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index).map((number) => (
            <LogLine
              key={number}
              number={number}
              segments={buffer.segments(number)}
              rows={isWrapped ? rows.rowOf(number + 1) - rows.rowOf(number) : 1}
              find={found.text.value}
              isCurrent={number === line}
              isLinked={linked !== undefined && linked.from <= number && number <= linked.to}
              href={link.addressOf({ from: number, to: number })}
              pick={(event) => pick(link, number, event)}
              time={times === undefined ? undefined : (times[number] ?? Number.NaN)}
            />
          ))}
        </div>
      </div>
    </div>
  )
}

/** Names a line that is clicked, with Shift the lines from the named one on. The browser opens it in another tab with Ctrl. */
function pick({ lines, name }: Link, number: number, event: MouseEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return
  event.preventDefault()
  event.stopPropagation()
  const other = event.shiftKey && lines !== undefined ? lines.from : number
  name({ from: Math.min(number, other), to: Math.max(number, other) })
}

interface PlaceOptions {
  rows: LogRows
  view: RowWindow
  isFollowing: { value: boolean }
}

/** Place of the window over the rows. */
function usePlace(ref: { current: HTMLElement | null }, { rows, view, isFollowing }: PlaceOptions) {
  /** Row at the top. */
  const top = useSignal(0)
  /** Line that stays where it is when lines get other rows. */
  const kept = useRef({ line: 0, above: 0 })
  const moveTo = (row: number): void => {
    const element = ref.current
    if (element === null) return
    kept.current = { line: rows.lineAt(row), above: 0 }
    element.scrollTop = view.scrolledTo(row)
    top.value = Math.max(0, Math.min(row, view.rows - view.visible / ROW_HEIGHT))
  }
  const show = (line: number | undefined, above = ROWS_ABOVE): void => {
    if (line === undefined) return
    moveTo(rows.rowOf(line) - above)
    kept.current = { line, above }
  }
  useLayoutEffect(() => {
    if (!isFollowing.value) show(kept.current.line, kept.current.above)
  }, [rows, view.visible])
  useFollowing({ isFollowing, moveTo, end: view.rows })
  useScaledScrolling(ref, view, (by) => moveTo(top.value + by))
  const onScroll = (): void => {
    const element = ref.current
    if (element === null || Math.abs(element.scrollTop - view.scrolledTo(top.value)) < 1.5) return
    top.value = view.topAt(element.scrollTop)
    kept.current = { line: rows.lineAt(top.value), above: 0 }
    isFollowing.value = element.scrollTop + element.clientHeight >= element.scrollHeight - 2
  }
  return { top, show, onScroll }
}

interface Following {
  isFollowing: { value: boolean }
  moveTo: (row: number) => void
  end: number
}

/** Keeps the end of the log in sight. */
function useFollowing({ isFollowing, moveTo, end }: Following): void {
  useLayoutEffect(() => {
    if (isFollowing.value) moveTo(end)
  }, [end, isFollowing.value])
}

/** Returns the size of an element, and the width of a letter in it, pixels. */
function useSize(ref: { current: HTMLElement | null }) {
  const size = useSignal({ width: 800, height: 400, letter: 8 })
  useLayoutEffect(() => {
    const element = ref.current
    if (element === null) return
    const measure = (): void => {
      const probe = document.createElement("span")
      probe.textContent = "0".repeat(100)
      probe.className = "log-probe"
      element.append(probe)
      const letter = probe.getBoundingClientRect().width / 100
      probe.remove()
      const { clientWidth: width, clientHeight: height } = element
      const { value } = size
      if (value.width !== width || value.height !== height || value.letter !== letter)
        size.value = { width, height, letter }
    }
    measure()
    const observer = new ResizeObserver(measure)
    observer.observe(element)
    return () => observer.disconnect()
  }, [])
  return size.value
}

const KEY_ROWS: Record<string, (page: number) => number> = {
  ArrowDown: () => 2,
  ArrowUp: () => -2,
  PageDown: (page) => page,
  PageUp: (page) => -page,
}

/** Scrolls by rows where the scrollbar is too coarse: with the wheel and with keys. */
function useScaledScrolling(
  ref: { current: HTMLElement | null },
  view: RowWindow,
  moveBy: (rows: number) => void,
): void {
  const latest = useRef({ view, moveBy })
  latest.current = { view, moveBy }
  useEffect(() => {
    const element = ref.current
    if (element === null) return
    const wheel = (event: WheelEvent): void => {
      if (!latest.current.view.isScaled || event.ctrlKey) return
      event.preventDefault()
      latest.current.moveBy(event.deltaY / ROW_HEIGHT)
    }
    const key = (event: KeyboardEvent): void => {
      const rowsOf = KEY_ROWS[event.key]
      if (!latest.current.view.isScaled || rowsOf === undefined) return
      event.preventDefault()
      latest.current.moveBy(rowsOf(latest.current.view.visible / ROW_HEIGHT - 1))
    }
    element.addEventListener("wheel", wheel, { passive: false })
    element.addEventListener("keydown", key)
    return () => {
      element.removeEventListener("wheel", wheel)
      element.removeEventListener("keydown", key)
    }
  }, [])
}
