import type { JobRecord } from "../../client/client.ts"
import { isEnded } from "../../client/jobs.ts"
import { type JobUsage, readUsage, shortNumber, type UsagePoint, usedText } from "../../client/usage.ts"
import { roundedUp } from "../costs.ts"
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

/** One line over time. */
interface Curve {
  title: string
  unit: string
  value: (point: UsagePoint) => number | null
  /** The machine's own size; null: not known. */
  size: (machine: JobUsage["machine"]) => number | null
}

const CURVES: readonly Curve[] = [
  { title: "CPU", unit: "vCPU", value: ({ cpu }) => cpu, size: (machine) => machine?.cpu ?? null },
  {
    title: "Memory",
    unit: "GiB",
    value: ({ memory_mib }) => memory_mib / 1024,
    size: (machine) => machine?.memory_gib ?? null,
  },
  { title: "GPU", unit: "%", value: ({ gpu_percent }) => gpu_percent, size: () => 100 },
  {
    title: "GPU memory",
    unit: "GiB",
    value: ({ vram_mib }) => (vram_mib === null ? null : vram_mib / 1024),
    size: (machine) => machine?.vram_gib ?? null,
  },
]

/** Use of a job over time, and at most. */
export function Usage({ job }: { job: JobRecord }) {
  const turn = isEnded(job) ? job.updated_at : Math.floor(now.value / READ_MS)
  const read = async (signal: AbortSignal) => (await readUsage(client.value, job.id, undefined, signal)) ?? null
  const usage = useLoad(`usage ${job.id} ${turn}`, read, job.id)
  return (
    <section class="panel" aria-label="Use">
      <Answer of={usage}>{(found) => <Found job={job} usage={found} />}</Answer>
    </section>
  )
}

function Found({ job, usage }: { job: JobRecord; usage: JobUsage | null }) {
  const used = usedText(usage?.usage, usage?.machine)
  if (usage === null || used === undefined) return <Empty title="No use is known">{whyEmpty(job)}</Empty>
  return (
    <>
      <p>{used}</p>
      {CURVES.map((curve) => (
        <Chart key={curve.title} curve={curve} usage={usage} />
      ))}
      <p class="minor">Samples of 5 seconds: peaks between them are unseen.</p>
    </>
  )
}

function whyEmpty({ started_at, status }: JobRecord) {
  if (started_at === null) return <p>The container has not started.</p>
  return <p>{status === "running" ? "The machine reports once a minute." : "The machine's agent measured nothing."}</p>
}

function Chart({ curve: { title, unit, value, size }, usage }: { curve: Curve; usage: JobUsage }) {
  const points = usage.points.filter((point) => value(point) !== null)
  const [first, last] = [points[0], points.at(-1)]
  if (first === undefined || last === undefined) return null
  const peak = Math.max(...points.map((point) => value(point) ?? 0))
  const own = size(usage.machine)
  const most = Math.max(own ?? roundedUp(peak), peak)
  const text = `${title}: at most ${shortNumber(peak)}${own === null ? "" : ` of ${shortNumber(own)}`} ${unit}`
  return (
    <figure class="chart">
      <figcaption>{text}</figcaption>
      <div class="chart-place" aria-hidden="true">
        <div class="axis key-1">
          <span>{shortNumber(most)}</span>
          <span>0</span>
        </div>
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none">
          {[0, 0.5, 1].map((part) => (
            <path key={part} class="grid" d={`M0 ${part * HEIGHT}H${WIDTH}`} />
          ))}
          <path class="line-1" d={lineOf(points, (point) => (value(point) ?? 0) / most)} />
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
export function lineOf(points: readonly UsagePoint[], part: (point: UsagePoint) => number): string {
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
