import type { ComponentChildren } from "preact"
import type { Segment } from "../ansi.ts"
import { timeText } from "../format.ts"
import { ROW_HEIGHT } from "../log-rows.ts"
import { lineTime } from "../log-times.ts"
import { zone } from "../state.ts"

interface Props {
  /** From 0. */
  number: number
  segments: readonly Segment[]
  rows: number
  /** Text that is marked. */
  find: string
  isCurrent: boolean
  /** True for a line that the address names. */
  isLinked: boolean
  /** Address of the line. */
  href: string
  pick: (event: MouseEvent) => void
  /** Milliseconds since 1970, NaN if it is not known; undefined: the log is shown without times. */
  time: number | undefined
}

/** One line of a log. Its bytes become text nodes only. */
export function LogLine({ number, segments, rows, find, isCurrent, isLinked, href, pick, time }: Props) {
  return (
    <div
      class={`log-line ${isCurrent ? "current" : ""} ${isLinked ? "linked" : ""}`}
      style={{ height: `${rows * ROW_HEIGHT}px` }}
    >
      {/* With the keyboard, the field for the line does the same. */}
      <a class="log-number" href={href} tabIndex={-1} onClick={pick}>
        {number + 1}
      </a>
      {time !== undefined && <LineTime of={time} />}
      <span class="log-text">
        {segments.map(({ text: piece, styles }, index) =>
          styles.length === 0 ? (
            markMatches(piece, find)
          ) : (
            <span key={index} class={styles.join(" ")}>
              {markMatches(piece, find)}
            </span>
          ),
        )}
      </span>
    </div>
  )
}

function LineTime({ of }: { of: number }) {
  if (Number.isNaN(of)) return <span class="log-time" />
  const iso = new Date(of).toISOString()
  return (
    <time class="log-time" dateTime={iso} title={`${timeText(iso, "local")} (${timeText(iso, "utc")})`}>
      {lineTime(of, zone.value)}
    </time>
  )
}

/** Returns a text with the occurrences of another marked. */
function markMatches(text: string, find: string): ComponentChildren {
  if (find === "") return text
  const [lower, wanted] = [text.toLowerCase(), find.toLowerCase()]
  const pieces: ComponentChildren[] = []
  let end = 0
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, end)) {
    pieces.push(text.slice(end, at), <mark key={at}>{text.slice(at, at + wanted.length)}</mark>)
    end = at + wanted.length
  }
  return end === 0 ? text : [...pieces, text.slice(end)]
}
