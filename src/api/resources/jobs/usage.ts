import Type, { type Static } from "typebox"
import type { StoredJob } from "../../../core/apis/job.ts"
import { COMPONENT } from "../../../core/apis/schema.ts"
import { toUsageRecord, UsageRecordSchema } from "../../../core/records/usage.ts"
import { unavailable } from "../../http/problem.ts"
import type { JobRef } from "../../logs/store.ts"
import { type LaunchPoint, summaryOf } from "../../usage/series.ts"
import type { UsageTails } from "../../usage/tails.ts"
import { refOf } from "./logs.ts"

/** Schema of a number that is null if it was not measured. */
function measured(description: string) {
  return Type.Unsafe<number | null>({ type: ["number", "null"], description: `${description} Null: not measured.` })
}

const PointSchema = Type.Object(
  {
    launch: Type.Integer({ description: "Number of the job's VM, from 1." }),
    time: Type.String({ format: "date-time", description: "Beginning." }),
    seconds: Type.Number({ description: "Length. Usually a minute; more for old points of a long job." }),
    cpu: Type.Number({ description: "Mean number of vCPUs in use." }),
    memory_mib: Type.Number({ description: "Largest memory of the container without its file cache, MiB." }),
    disk_gib: measured("Largest use of the VM's disk, GiB."),
    received_mib: measured("Data that the container received, MiB."),
    sent_mib: measured("Data that the container sent, MiB."),
    gpu_percent: measured("Mean use of the GPUs, percent of all of them."),
    vram_mib: measured("Largest GPU memory in use, summed over all cards, MiB."),
  },
  { [COMPONENT]: "UsagePoint" },
)

const MachineSchema = Type.Unsafe<{
  cpu: number
  memory_gib: number
  gpus: number | null
  vram_gib: number | null
} | null>({
  type: ["object", "null"],
  required: ["cpu", "memory_gib", "gpus", "vram_gib"],
  properties: {
    cpu: Type.Number({ description: "Number of vCPUs." }),
    memory_gib: Type.Number({ description: "GiB." }),
    gpus: Type.Unsafe<number | null>({ type: ["number", "null"], description: "Number of cards. Null: no GPU." }),
    vram_gib: Type.Unsafe<number | null>({
      type: ["number", "null"],
      description: "GPU memory of all cards, GiB. Null: no GPU.",
    }),
  },
  description: "Size of the selected machine. Null: none was selected.",
})

/** Answer of GET /jobs/{id}/usage. */
export const JobUsageSchema = Type.Object({
  usage: UsageRecordSchema,
  machine: MachineSchema,
  known_until: Type.Unsafe<string | null>({
    type: ["string", "null"],
    format: "date-time",
    description:
      "End of the last point. With several replicas of the façade, only the one that the VM reports to knows the last 30 minutes of a running job. Null: there are no points.",
  }),
  points: Type.Array(PointSchema, { description: "What the job's runs used, oldest first." }),
})
export type JobUsage = Static<typeof JobUsageSchema>

/** Reads the points of a job. */
export type ReadUsage = UsageTails["read"]

/**
 * Returns what a job uses and used. A running job's summary is that of its current VM's points.
 * @param last number of last points; undefined: all
 * @throws Problem 503 when the store fails
 */
export async function jobUsage(job: StoredJob, read: ReadUsage, last: number | undefined): Promise<JobUsage> {
  const { status = {} } = job
  const all = await readOr503(refOf(job), status.launches?.current, read)
  const newest = all.at(-1)?.launch
  const usage = status.usage ?? summaryOf(all.filter(({ launch }) => launch === newest))
  const end = all.at(-1)
  return {
    usage: usage === undefined ? null : toUsageRecord(usage),
    machine: machineOf(job),
    known_until: end === undefined ? null : new Date(end.time + end.seconds * 1000).toISOString(),
    points: (last === undefined ? all : all.slice(all.length - Math.min(last, all.length))).map(toPoint),
  }
}

async function readOr503(job: JobRef, current: string | undefined, read: ReadUsage): Promise<LaunchPoint[]> {
  try {
    return await read(job, current)
  } catch (error) {
    throw unavailable("The store of usage is unavailable: try again.", 10, error)
  }
}

function machineOf({ status }: StoredJob): JobUsage["machine"] {
  const offer = status?.placement?.offer
  if (offer === undefined) return null
  const { cpu, memoryGib, gpu } = offer
  return {
    cpu,
    memory_gib: memoryGib,
    gpus: gpu?.count ?? null,
    vram_gib: gpu === undefined ? null : gpu.vramGib,
  }
}

function toPoint({ launch, time, seconds, cpu, memoryMib, ...point }: LaunchPoint): Static<typeof PointSchema> {
  return {
    launch,
    time: new Date(time).toISOString(),
    seconds,
    cpu,
    memory_mib: memoryMib,
    disk_gib: point.diskGib ?? null,
    received_mib: point.receivedMib ?? null,
    sent_mib: point.sentMib ?? null,
    gpu_percent: point.gpu ?? null,
    vram_mib: point.vramMib ?? null,
  }
}
