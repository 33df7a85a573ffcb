import { useSignal } from "@preact/signals"
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks"
import type { JobRecord } from "../../client/client.ts"
import { isEnded } from "../../client/jobs.ts"
import { logOf } from "../../client/logs.ts"
import { bytes, count } from "../format.ts"
import { LogBuffer } from "../log-buffer.ts"
import { LogRows, ROW_HEIGHT, RowWindow } from "../log-rows.ts"
import { client } from "../state.ts"
import { typed } from "./basics.tsx"
import { Empty, Fault } from "./load.tsx"
import { LogLine } from "./log-line.tsx"
import { saveFile } from "./save.ts"

type ReadState = "reading" | "cut" | "complete"

/** Reads the log of a job into memory. `version` changes with each piece. */
function useLog({ id, ended_at }: JobRecord) {
  const buffer = useMemo(() => new LogBuffer(), [id])
  const version = useSignal(0)
  const state = useSignal<ReadState>("reading")
  const error = useSignal<unknown>(undefined)
  const attempt = useSignal(0)
  useEffect(() => {
    const stop = new AbortController()
    const { signal } = stop
    let frame = 0
    const show = (): void => {
      frame ||= requestAnimationFrame(() => {
        frame = 0
        version.value++
      })
    }
    const read = async (): Promise<void> => {
      // A second try begins where the first one ended.
      let known = buffer.length
      const onReconnect = (): void => {
        state.value = "cut"
      }
      for await (const piece of logOf(client.value, id, { follow: ended_at === null, signal, onReconnect })) {
        const fresh = piece.subarray(Math.min(known, piece.length))
        known -= piece.length - fresh.length
        buffer.append(fresh)
        state.value = "reading"
        show()
      }
      state.value = "complete"
      show()
    }
    error.value = undefined
    read().catch((fault: unknown) => {
      if (!signal.aborted) error.value = fault
    })
    return () => {
      stop.abort()
      cancelAnimationFrame(frame)
    }
  }, [id, attempt.value])
  return {
    buffer,
    version,
    state,
    error,
    retry: () => {
      attempt.value++
    },
  }
}

/** Log of a job: it follows, finds, wraps, and shows only the lines that are in sight. */
export function LogViewer({ job }: { job: JobRecord }) {
  const log = useLog(job)
  const isWrapped = useSignal(true)
  const isFollowing = useSignal(true)
  const found = useFind(log.buffer, log.version.value)
  const { buffer, version, state, error } = log
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
        <label class="toggle">
          <input
            type="checkbox"
            checked={isFollowing.value}
            onChange={({ currentTarget }) => {
              isFollowing.value = currentTarget.checked
            }}
          />
          Follow
        </label>
        <label class="toggle">
          <input
            type="checkbox"
            checked={isWrapped.value}
            onChange={({ currentTarget }) => {
              isWrapped.value = currentTarget.checked
            }}
          />
          Wrap
        </label>
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
      {!isEmpty && <Lines buffer={buffer} isWrapped={isWrapped.value} isFollowing={isFollowing} found={found} />}
    </section>
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
  else for await (const piece of logOf(client.value, job.id, { follow: false })) pieces.push(new Uint8Array(piece))
  saveFile(`${job.name}.log`, pieces, "text/plain")
}

/** Lines that one step of a search reads. In between, the page answers the reader. */
const STEP_LINES = 20_000
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
        onInput={typed((value) => {
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
  isWrapped: boolean
  isFollowing: { value: boolean }
  found: Found
}

/** Window over the lines. */
function Lines({ buffer, isWrapped, isFollowing, found }: LinesProps) {
  const frame = useRef<HTMLDivElement>(null)
  const size = useSize(frame)
  const digits = Math.max(3, String(buffer.lineCount).length)
  const columns = isWrapped ? Math.max(20, Math.floor(size.width / size.letter) - digits - 3) : undefined
  const rows = useMemo(() => new LogRows(buffer, columns), [buffer, columns])
  const view = new RowWindow(rows.count, size.height)
  const top = useSignal(0)
  const moveTo = (row: number): void => {
    const element = frame.current
    if (element === null) return
    element.scrollTop = view.scrolledTo(row)
    top.value = Math.max(0, Math.min(row, view.rows - size.height / ROW_HEIGHT))
  }
  useFollowing({ isFollowing, moveTo, end: view.rows })
  const line = found.lines.value[found.current.value]
  useLayoutEffect(() => {
    if (line !== undefined) moveTo(rows.rowOf(line) - 4)
  }, [line])
  useScaledScrolling(frame, view, (by) => moveTo(top.value + by))
  const onScroll = (): void => {
    const element = frame.current
    if (element === null || Math.abs(element.scrollTop - view.scrolledTo(top.value)) < 1.5) return
    top.value = view.topAt(element.scrollTop)
    isFollowing.value = element.scrollTop + element.clientHeight >= element.scrollHeight - 2
  }
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
      <div style={{ height: `${view.height}px`, width: isWrapped ? "100%" : `${buffer.longest + digits + 3}ch` }}>
        <div class="log-window" style={{ transform: `translateY(${offset}px)`, "--digits": `${digits}ch` }}>
          {Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index).map((number) => (
            <LogLine
              key={number}
              number={number}
              segments={buffer.segments(number)}
              rows={isWrapped ? rows.rowOf(number + 1) - rows.rowOf(number) : 1}
              find={found.text.value}
              isCurrent={number === line}
            />
          ))}
        </div>
      </div>
    </div>
  )
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
