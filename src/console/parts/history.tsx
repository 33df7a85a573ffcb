import type { JobRecord } from "../../client/client.ts"
import { count, usd } from "../format.ts"
import { historyOf } from "../history.ts"
import { zone } from "../state.ts"

const DAY_MS = 86_400_000
const HOUR_MS = 3_600_000
/** Size of the drawing. It is stretched to the width of the page. */
const WIDTH = 960
const HEIGHT = 160

interface HistoryProps {
  jobs: readonly JobRecord[]
  /** The jobs are all that ran since this time, milliseconds since 1970. Absent: for the whole day. */
  wholeSince?: number | undefined
  /** Number of live jobs that are not among them. */
  left: number
}

/** Chart of running jobs and of their price per hour, over the last 24 hours. */
export function History({ jobs, wholeSince, left }: HistoryProps) {
  const to = Date.now()
  const from = to - DAY_MS
  const { running, usdPerHour } = historyOf(jobs, from, to)
  const [most, dearest] = [Math.max(...running), Math.max(...usdPerHour)]
  const [top, topUsd] = [Math.max(1, most), Math.max(0.01, dearest)]
  const hours = [0, 6, 12, 18, 24].map((hour) => new Date(from + hour * HOUR_MS))
  return (
    <figure class="chart">
      <div class="chart-place" aria-hidden="true">
        <div class="axis key-1">
          <span>{count(top)}</span>
          <span>0</span>
        </div>
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none">
          {[0, 0.25, 0.5, 0.75, 1].map((part) => (
            <path key={part} class="grid" d={`M0 ${part * HEIGHT}H${WIDTH}M${part * WIDTH} 0V${HEIGHT}`} />
          ))}
          <path class="area" d={`${stepsOf(running, top)}V${HEIGHT}H0Z`} />
          <path class="line-1" d={stepsOf(running, top)} />
          <path class="line-2" d={stepsOf(usdPerHour, topUsd)} />
        </svg>
        <div class="axis key-2">
          <span>{usd(topUsd)}</span>
          <span>0</span>
        </div>
        <div class="axis-times">
          {hours.map((hour) => (
            <span key={hour.getTime()}>{clockText(hour)}</span>
          ))}
        </div>
      </div>
      <figcaption>
        <span class="key key-1">running jobs, at most {count(most)} at the same time</span>
        <span class="key key-2">price of their machines, at most {usd(dearest)}/h</span>
        <p class="minor">
          The most in each 15 minutes. A job counts from its first start to its end, also while it waits for a new
          machine. The price includes disks and addresses. Machines also cost while they boot and end: the chart leaves
          that out.
          {wholeSince !== undefined &&
            ` Before ${clockText(new Date(wholeSince))} more jobs ran: the chart has those that ended last.`}
          {left > 0 && ` ${count(left)} more jobs are live, and not in the chart.`}
        </p>
      </figcaption>
    </figure>
  )
}

/** Returns the path of values of intervals. */
function stepsOf(values: readonly number[], most: number): string {
  const width = WIDTH / values.length
  return values
    .map((value, index) => {
      const y = (HEIGHT * (1 - value / most)).toFixed(1)
      return `${index === 0 ? "M0 " : "V"}${y}H${((index + 1) * width).toFixed(1)}`
    })
    .join("")
}

function clockText(time: Date): string {
  const of = { hour: "2-digit", minute: "2-digit", ...(zone.value === "utc" && { timeZone: "UTC" }) } as const
  return time.toLocaleTimeString(undefined, of)
}
