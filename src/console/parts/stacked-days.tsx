import { roundedUp, type Stack } from "../costs.ts"
import { dateText, usd } from "../format.ts"

/** Size of the drawing. It is stretched to the width of the page. */
const WIDTH = 960
const HEIGHT = 200
/** Part of a day's place that its bar takes. */
const BAR = 0.78
/** Days between two labels of the axis. */
const LABELS = 7
/** Last days without a label, which would not fit on a small screen. */
const NO_LABELS = 4

/** Chart of the costs of each day, in parts. Its numbers are also in a table of the page. */
export function StackedDays({ keys, days }: Stack) {
  const most = roundedUp(Math.max(...days.map((day) => day.usd)))
  const step = WIDTH / days.length
  return (
    <figure class="chart days">
      <div class="chart-place" aria-hidden="true">
        <div class="axis">
          <span>{usd(most)}</span>
          <span>{usd(most / 2)}</span>
          <span>0</span>
        </div>
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none">
          {[0, 0.5, 1].map((part) => (
            <path key={part} class="grid" d={`M0 ${part * HEIGHT}H${WIDTH}`} />
          ))}
          {days.map(({ day, parts }, index) => {
            let top = HEIGHT
            const x = (index + (1 - BAR) / 2) * step
            return parts.map((part, at) => {
              const height = (part / most) * HEIGHT
              top -= height
              return (
                <rect
                  key={`${day} ${keys[at]}`}
                  class={`part-${at + 1}`}
                  x={x.toFixed(1)}
                  y={top.toFixed(1)}
                  width={(step * BAR).toFixed(1)}
                  height={height.toFixed(1)}
                />
              )
            })
          })}
          {days.map(({ day, usd: cost, parts }, index) => (
            <rect key={day} class="hover" x={index * step} y={0} width={step} height={HEIGHT}>
              <title>{[`${dateText(day)}: ${usd(cost)}`, ...namedParts(keys, parts)].join("\n")}</title>
            </rect>
          ))}
        </svg>
        <div class="axis-days">
          {days.map(({ day }, index) => (
            <span key={day}>{index % LABELS === 0 && index < days.length - NO_LABELS && dateText(day)}</span>
          ))}
        </div>
      </div>
      {keys.length > 1 && (
        <figcaption>
          {keys.map((key, at) => (
            <span key={key} class={`key part-${at + 1}`}>
              {key}
            </span>
          ))}
        </figcaption>
      )}
    </figure>
  )
}

function namedParts(keys: readonly string[], parts: readonly number[]): string[] {
  if (keys.length < 2) return []
  return parts.flatMap((part, at) => (part > 0 ? [`${keys[at]} ${usd(part)}`] : []))
}
