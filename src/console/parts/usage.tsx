import { type JobRecord, readBody } from "../../client/client.ts"
import { isEnded } from "../../client/jobs.ts"
import { type JobUsage, partOf, shortNumber, type UsagePoint } from "../../client/usage.ts"
import { timeText } from "../format.ts"
import { client, now, zone } from "../state.ts"
import { Answer, Empty, useLoad } from "./load.tsx"

/** Size of a drawing. It is stretched to the width of the page. */
const WIDTH = 960
const HEIGHT = 200

/** Time without points from which a line is broken, milliseconds. */
const GAP_MS = 300_000

/** Delay between two reads while the job runs, milliseconds: its VM reports once a minute. */
const READ_MS = 30_000

type Machine = NonNullable<JobUsage["machine"]>

/** Lines over time: title, unit, value of a point, size of the machine, and how many of the value's units are one. */
const LINES: readonly (readonly [string, string, keyof UsagePoint, keyof Machine | undefined, number])[] = [
  ["CPU", "vCPU", "cpu", "cpu", 1],
  ["Memory", "GiB", "memory_mib", "memory_gib", 1024],
  ["GPU", "%", "gpu_percent", undefined, 1],
  ["GPU memory", "GiB", "vram_mib", "vram_gib", 1024],
]

/** Use of a job over time, and at most. */
export function Usage({ job }: { job: JobRecord }) {
  const turn = isEnded(job) ? job.updated_at : Math.floor(now.value / READ_MS)
  const params = { path: { id: job.id } }
  const read = (signal: AbortSignal) => readBody(client.value.api.GET("/jobs/{id}/usage", { params, signal }))
  const usage = useLoad(`usage ${job.id} ${turn}`, read, job.id)
  return (
    <section class="panel" aria-label="Use">
      <Answer of={usage}>{(found) => <Found job={job} usage={found} />}</Answer>
    </section>
  )
}

function Found({ job, usage }: { job: JobRecord; usage: JobUsage }) {
  if (usage.points.length === 0) return <Empty title={whyEmpty(job)} />
  return (
    <>
      {LINES.map((line) => (
        <Chart key={line[0]} line={line} usage={usage} />
      ))}
    </>
  )
}

function whyEmpty({ started_at, status }: JobRecord): string {
  if (started_at === null) return "The container has not started."
  return status === "running" ? "It reports once a minute." : "Nothing is known over time."
}

function Chart({ line: [title, unit, field, size, units], usage }: { line: (typeof LINES)[number]; usage: JobUsage }) {
  const points = usage.points.filter((point) => point[field] !== null)
  const [first, last] = [points[0], points.at(-1)]
  if (first === undefined || last === undefined) return null
  const value = (point: UsagePoint) => Number(point[field]) / units
  const peak = Math.max(...points.map(value))
  const own = size === undefined ? 100 : (usage.machine?.[size] ?? null)
  const most = Math.max(own ?? 0, peak) || 1
  const text = `${title}: at most ${partOf(shortNumber(peak), own)} ${unit}`
  return (
    <figure class="chart">
      <figcaption>{text}</figcaption>
      <div class="chart-place" aria-hidden="true">
        <div class="axis key-1">
          <span>{shortNumber(most)}</span>
          <span>0</span>
        </div>
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none">
          <path class="grid" d={`M0 0H${WIDTH}M0 ${HEIGHT}H${WIDTH}`} />
          <path class="line-1" d={lineOf(points, (point) => value(point) / most)} />
        </svg>
        <div class="axis-times">
          <span>{timeText(first.time, zone.value)}</span>
          <span>{timeText(last.time, zone.value)}</span>
        </div>
      </div>
    </figure>
  )
}

/** Returns the path of a line through the points. It is broken where nothing was measured, as between two machines. */
function lineOf(points: readonly UsagePoint[], part: (point: UsagePoint) => number): string {
  const start = Date.parse(points[0]?.time ?? "")
  const end = endOf(points.at(-1))
  const x = (time: number): string => (((time - start) / Math.max(1, end - start)) * WIDTH).toFixed(1)
  return points
    .map((point, index) => {
      const before = points[index - 1]
      const from = Date.parse(point.time)
      const isNew = before === undefined || before.launch !== point.launch || from - endOf(before) > GAP_MS
      const y = (HEIGHT * (1 - part(point))).toFixed(1)
      return `${isNew ? "M" : "L"}${x(from)} ${y}H${x(endOf(point))}`
    })
    .join("")
}

function endOf(point: UsagePoint | undefined): number {
  return point === undefined ? 0 : Date.parse(point.time) + point.seconds * 1000
}
