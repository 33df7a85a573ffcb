import Type, { type Static } from "typebox"
import { COMPONENT, Int } from "./schema.ts"

/** Use of a VM by a job's container. */

/** Longest time of an idle limit, seconds. */
export const LONGEST_IDLE_SECONDS = 30 * 86_400

/** Shortest time of an idle limit, seconds: shorter ones end jobs that only load data. */
export const SHORTEST_IDLE_SECONDS = 300

/** Use up to which a job counts as idle unless its limit says otherwise, percent. */
export const DEFAULT_IDLE_PERCENT = 5

/** Time of an idle limit that names none, seconds. */
export const DEFAULT_IDLE_SECONDS = 1800

function Percent(description: string) {
  return Type.Optional(Type.Number({ minimum: 0, maximum: 100, description }))
}

/** Limit after which the agent ends a container that does nothing. */
export const IdleLimitSchema = Type.Object(
  {
    seconds: Type.Optional(
      Int({
        minimum: SHORTEST_IDLE_SECONDS,
        maximum: LONGEST_IDLE_SECONDS,
        default: DEFAULT_IDLE_SECONDS,
        description: "Seconds without use after which the job fails (Idle).",
      }),
    ),
    gpuPercent: Percent(
      "The GPUs count as unused up to this percentage, the highest of all cards. Default on a VM with GPUs: 5.",
    ),
    cpuPercent: Percent(
      "The vCPUs count as unused up to this percentage of all of them. Default on a VM without GPUs: 5, and at most half a vCPU. On one with GPUs they don't count unless this is given.",
    ),
  },
  {
    [COMPONENT]: "IdleLimit",
    description:
      "Ends a container that uses nothing. A time without a measurement counts as use. Default: no limit, or the installation's.",
  },
)
export type IdleLimit = Static<typeof IdleLimitSchema>

const Amount = (description: string) => Type.Number({ minimum: 0, description })

/** Use of a run over all its time. */
export const UsageSchema = Type.Object(
  {
    seconds: Int({ description: "Time that was measured, seconds." }),
    cpuMean: Amount("Mean number of vCPUs in use."),
    cpuPeak: Amount("Number of vCPUs in use in the minute with the most."),
    memoryPeakMib: Amount(
      "Largest memory of the container without its file cache, MiB. Peaks between samples are unseen.",
    ),
    diskPeakGib: Type.Optional(Amount("Largest use of the VM's disk, GiB.")),
    receivedGib: Type.Optional(Amount("Data that the container received over the network, GiB.")),
    sentGib: Type.Optional(Amount("Data that the container sent over the network, GiB.")),
    gpuMean: Type.Optional(Amount("Mean use of the GPUs, percent of all of them. Absent: unknown, or no GPU.")),
    vramPeakMib: Type.Optional(Amount("Largest GPU memory in use, summed over all cards, MiB.")),
  },
  { description: "What the run used, by samples of 5 seconds." },
)
export type Usage = Static<typeof UsageSchema>

/** Use of a run in one piece of its time, usually a minute. Rates are means, memory and disk the largest values. */
export const UsagePointSchema = Type.Object({
  /** Beginning, milliseconds since 1970. */
  time: Int(),
  /** Length, seconds. */
  seconds: Type.Number({ minimum: 0 }),
  /** VCPUs in use. */
  cpu: Type.Number({ minimum: 0 }),
  memoryMib: Type.Number({ minimum: 0 }),
  diskGib: Type.Optional(Type.Number({ minimum: 0 })),
  /** MiB in the whole piece. */
  receivedMib: Type.Optional(Type.Number({ minimum: 0 })),
  sentMib: Type.Optional(Type.Number({ minimum: 0 })),
  /** Percent of all cards. Absent: unknown, or no GPU. */
  gpu: Type.Optional(Type.Number({ minimum: 0, maximum: 100 })),
  vramMib: Type.Optional(Type.Number({ minimum: 0 })),
})
export type UsagePoint = Static<typeof UsagePointSchema>

/** Points in one report, at most. An agent keeps at least as many until the gateway has stored them. */
export const USAGE_POINTS = 64
