import type { ComponentChildren } from "preact"
import type { Segment } from "../ansi.ts"
import { ROW_HEIGHT } from "../log-rows.ts"

interface Props {
  /** From 0. */
  number: number
  segments: readonly Segment[]
  rows: number
  /** Text that is marked. */
  find: string
  isCurrent: boolean
}

/** One line of a log. Its bytes become text nodes only. */
export function LogLine({ number, segments, rows, find, isCurrent }: Props) {
  return (
    <div class={isCurrent ? "log-line current" : "log-line"} style={{ height: `${rows * ROW_HEIGHT}px` }}>
      <span class="log-number" aria-hidden="true">
        {number + 1}
      </span>
      <span class="log-text">
        {segments.map(({ text: piece, styles }, index) =>
          styles.length === 0 ? (
            marked(piece, find)
          ) : (
            <span key={index} class={styles.join(" ")}>
              {marked(piece, find)}
            </span>
          ),
        )}
      </span>
    </div>
  )
}

/** Returns a text with the occurrences of another marked. */
function marked(text: string, find: string): ComponentChildren {
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
