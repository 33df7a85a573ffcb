import type { JobRecord } from "../../client/client.ts"
import { count, usd } from "../format.ts"
import { historyOf } from "../history.ts"
import { zone } from "../state.ts"

const DAY_MS = 86_400_000
const HOUR_MS = 3_600_000
/** Size of the drawing. It is stretched to the width of the page. */
const WIDTH = 960
const HEIGHT = 160

/** Chart of running jobs and of their price per hour, over the last 24 hours. */
export function History({ jobs, isPartial }: { jobs: readonly JobRecord[]; isPartial: boolean }) {
  const to = Date.now()
  const from = to - DAY_MS
  const { running, usdPerHour } = historyOf(jobs, from, to)
  const most = Math.max(1, ...running)
  const dearest = Math.max(0.01, ...usdPerHour)
  const hours = [0, 6, 12, 18, 24].map((hour) => new Date(from + hour * HOUR_MS))
  return (
    <figure class="chart">
      <div class="chart-place" aria-hidden="true">
        <div class="axis key-1">
          <span>{count(most)}</span>
          <span>0</span>
        </div>
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none">
          {[0, 0.25, 0.5, 0.75, 1].map((part) => (
            <path key={part} class="grid" d={`M0 ${part * HEIGHT}H${WIDTH}M${part * WIDTH} 0V${HEIGHT}`} />
          ))}
          <path class="area" d={`${stepsOf(running, most)}V${HEIGHT}H0Z`} />
          <path class="line-1" d={stepsOf(running, most)} />
          <path class="line-2" d={stepsOf(usdPerHour, dearest)} />
        </svg>
        <div class="axis key-2">
          <span>{usd(dearest)}</span>
          <span>0</span>
        </div>
        <div class="axis-times">
          {hours.map((hour) => (
            <span key={hour.getTime()}>{clockText(hour)}</span>
          ))}
        </div>
      </div>
      <figcaption>
        <span class="key key-1">running jobs, at most {count(Math.max(...running))}</span>
        <span class="key key-2">price, at most {usd(Math.max(...usdPerHour))}/h</span>
        {isPartial && <span class="minor"> Of the newest jobs only: there are more.</span>}
      </figcaption>
    </figure>
  )
}

/** Returns the path of values that stay until the next one. */
function stepsOf(values: readonly number[], most: number): string {
  const width = WIDTH / (values.length - 1)
  return values
    .map((value, index) => {
      const y = (HEIGHT * (1 - value / most)).toFixed(1)
      return index === 0 ? `M0 ${y}` : `H${(index * width).toFixed(1)}V${y}`
    })
    .join("")
}

function clockText(time: Date): string {
  const of = { hour: "2-digit", minute: "2-digit", ...(zone.value === "utc" && { timeZone: "UTC" }) } as const
  return time.toLocaleTimeString(undefined, of)
}
