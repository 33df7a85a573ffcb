import Type, { type Static } from "typebox"
import { INDEXES_PATTERN } from "./array-indexes.ts"
import { LIMITS } from "./field-limits.ts"
import { type JobSpec, JobSpecSchema, jobDefinition, WITHOUT_NUL } from "./job.ts"
import { AGE_COLUMN, defineKind, nameRules } from "./kind.ts"
import { GROUP, type KubeObject, LABELS, type ObjectMeta, type Stored } from "./meta.ts"
import { AfterSchema, JOB_NAME_PATTERN, ObservedAfterSchema } from "./prerequisites.ts"
import {
  ALLOWED,
  ConditionList,
  Int,
  immutable,
  MapSchema,
  ObservedGeneration,
  StringEnum,
  Time,
  TOTAL_BYTES,
} from "./schema.ts"
import { findErrors } from "./validate.ts"

/** Phases of an array. The last three are its ends, which only `retry` leaves. */
export const ARRAY_PHASES = ["queued", "running", "succeeded", "failed", "cancelled"] as const
export type ArrayPhase = (typeof ARRAY_PHASES)[number]

/** Finalizer of a JobArray. A deleted array first cancels its unfinished jobs. */
export const JOB_ARRAY_FINALIZER = `${GROUP}/array`

/** Environment variables of each job of an array, besides those of the matrix. */
export const ARRAY_ENV = { index: "BERTH_ARRAY_INDEX", size: "BERTH_ARRAY_SIZE" } as const

/** Types of a JobArray's conditions. Helm, Flux and Argo CD read `Ready`, `Reconciling` and `Stalled` (kstatus). */
export const JobArrayCondition = {
  Complete: "Complete",
  Failed: "Failed",
  Ready: "Ready",
  Reconciling: "Reconciling",
  Stalled: "Stalled",
} as const

/** Reasons of a JobArray's conditions and events. They are stable: programs match on them. */
export const JobArrayReason = {
  Queued: "Queued",
  Running: "Running",
  Succeeded: "Succeeded",
  /** Some indexes have failed, or were cancelled one by one. */
  IndexesFailed: "IndexesFailed",
  /** More indexes have failed than `maxFailed`. */
  MaxFailedExceeded: "MaxFailedExceeded",
  Cancelled: "Cancelled",
  InvalidDefinition: "InvalidDefinition",
  /** The API server or an admission policy rejected a job. */
  JobRefused: "JobRefused",
  /** The project, or its organization, is being deleted. */
  ProjectDeleting: "ProjectDeleting",
  /** The project has reached a limit of what it may store or create. */
  ProjectLimit: "ProjectLimit",
  Retried: "Retried",
  NameTaken: "NameTaken",
  /** A job or an array of its `after` has not ended yet. */
  WaitsForJob: "WaitsForJob",
  /** A job or an array of its `after` doesn't exist yet. */
  JobMissing: "JobMissing",
  /** A job or an array of its `after` ended with another outcome than the one that it waits for. */
  DependencyFailed: "DependencyFailed",
  /** It waits for itself: each job or array of a circle waits for the next one. */
  DependencyCycle: "DependencyCycle",
} as const
export type JobArrayReason = (typeof JobArrayReason)[keyof typeof JobArrayReason]

/** Number of ended jobs of each kind that an array keeps, unless it says otherwise. */
export const DEFAULT_HISTORY_LIMIT = 100

/** Number of unfinished jobs of an array, unless it says otherwise. */
export const DEFAULT_PARALLELISM = 10

const MATRIX_KEYS = {
  minLength: 1,
  maxLength: 63,
  pattern: "^[A-Za-z_][A-Za-z0-9_]*$",
  allowed: "names of variables: letters, digits and _, with a letter or _ first",
}

/** Declares a set of indexes. */
function Indexes(description: string, minLength = 0) {
  return Type.String({
    minLength,
    maxLength: LIMITS.indexes,
    pattern: INDEXES_PATTERN,
    description,
    [ALLOWED]: "indexes and ranges such as 0-41,44",
  })
}

/** A rule for each of these many values would be too expensive for the API server. So the pattern stays one. */
const MATRIX_VALUE = {
  maxLength: LIMITS.matrixValue,
  pattern: WITHOUT_NUL.pattern,
  [ALLOWED]: WITHOUT_NUL[ALLOWED],
}

/** Values of an array's variables. A job gets one combination of them. */
export const MatrixSchema = MapSchema(
  Type.Array(Type.String(MATRIX_VALUE), {
    minItems: 1,
    maxItems: LIMITS.arraySize,
  }),
  {
    keys: MATRIX_KEYS,
    maxProperties: LIMITS.matrixVariables,
    description: `Values of environment variables, by name. Each combination is one job. The variables are in alphabetical order, and the last one changes fastest. At most ${LIMITS.arraySize} combinations and ${LIMITS.matrixBytes} bytes.`,
    [TOTAL_BYTES]: LIMITS.matrixBytes,
  },
)
export type Matrix = Static<typeof MatrixSchema>

export const JobArraySpecSchema = Type.Object(
  {
    jobDefinition: jobDefinition("Spec of the jobs of the array."),
    size: Type.Optional(
      Int({
        minimum: 1,
        maximum: LIMITS.arraySize,
        description: "Number of jobs. An array has either size or matrix.",
      }),
    ),
    matrix: Type.Optional(MatrixSchema),
    parallelism: Type.Optional(
      Int({
        minimum: 1,
        maximum: LIMITS.arraySize,
        default: DEFAULT_PARALLELISM,
        description: "Maximum number of unfinished jobs. A smaller value cancels no job.",
      }),
    ),
    maxFailed: Type.Optional(
      Int({
        maximum: LIMITS.arraySize,
        description:
          "Number of failed indexes that the array accepts. After one more it creates no jobs; the unfinished ones continue. Default: no limit.",
      }),
    ),
    successfulJobsHistoryLimit: Type.Optional(
      Int({
        maximum: LIMITS.arraySize,
        default: DEFAULT_HISTORY_LIMIT,
        description: "Number of succeeded jobs to keep, those that ended last. The status has the indexes of all.",
      }),
    ),
    failedJobsHistoryLimit: Type.Optional(
      Int({
        maximum: LIMITS.arraySize,
        default: DEFAULT_HISTORY_LIMIT,
        description: "Number of failed and cancelled jobs to keep, those that ended last.",
      }),
    ),
    after: Type.Optional(AfterSchema),
    ttlSecondsAfterFinished: Type.Optional(
      Int({
        maximum: LIMITS.ttlSecondsAfterFinished,
        description:
          "Seconds after which a finished array is deleted. Its jobs have a separate time. Default: 30 days.",
      }),
    ),
    retry: Type.Optional(
      Type.Object(
        {
          number: Int({ minimum: 1, description: "Number of the request. A higher one is a new request." }),
          indexes: Indexes("Indexes such as 0-41,44. Those of them that failed or were cancelled run again.", 1),
        },
        { description: "Request to run failed indexes again, as new jobs." },
      ),
    ),
    cancelled: Type.Optional(
      Type.Boolean({ default: false, description: "Set to true to cancel the array and its jobs. Irreversible." }),
    ),
  },
  {
    description: "Jobs of one definition, each with its own index and variables.",
    "x-kubernetes-validations": [
      immutable(["jobDefinition", "size", "matrix", "after"]),
      { rule: "has(self.size) != has(self.matrix)", message: "must have either size or matrix" },
      {
        rule: "!(has(oldSelf.cancelled) && oldSelf.cancelled) || (has(self.cancelled) && self.cancelled)",
        message: "cancelled cannot be set back to false: create a new array",
        fieldPath: ".cancelled",
      },
      {
        rule: "!has(oldSelf.retry) || (has(self.retry) && (self.retry == oldSelf.retry || self.retry.number > oldSelf.retry.number))",
        message: "retry cannot be removed, and a change of its indexes needs a higher number",
        fieldPath: ".retry",
      },
    ],
  },
)
export type JobArraySpec = Static<typeof JobArraySpecSchema>

const count = (description: string) => Int({ description: `Number of indexes ${description}.` })

export const ArrayCountsSchema = Type.Object(
  {
    pending: count("without a job so far"),
    queued: count("whose job is queued"),
    booting: count("whose job is booting"),
    running: count("whose job is running"),
    succeeded: count("that succeeded"),
    failed: count("that failed"),
    cancelled: count("that were cancelled"),
  },
  { description: "Number of indexes by phase." },
)
export type ArrayCounts = Static<typeof ArrayCountsSchema>

export const JobArrayStatusSchema = Type.Object(
  {
    observedGeneration: ObservedGeneration,
    phase: Type.Optional(StringEnum(ARRAY_PHASES, { description: "Status of the array, as in the REST API." })),
    conditions: Type.Optional(ConditionList),
    after: Type.Optional(ObservedAfterSchema),
    size: Type.Optional(Int({ description: "Number of indexes." })),
    counts: Type.Optional(ArrayCountsSchema),
    activeIndexes: Type.Optional(
      Indexes("Indexes with a job that has not ended, or whose VM is not deleted and whose cost is not final yet."),
    ),
    succeededIndexes: Type.Optional(Indexes("Indexes that succeeded.")),
    failedIndexes: Type.Optional(Indexes("Indexes that failed.")),
    cancelledIndexes: Type.Optional(
      Indexes("Indexes that were cancelled: with the array, or because their job was cancelled or deleted."),
    ),
    attempts: Type.Optional(
      Type.Array(
        Type.Object({
          attempt: Int({ minimum: 2, description: "Number of the attempt, which the names of its jobs have." }),
          indexes: Indexes("Indexes with this number."),
        }),
        { maxItems: LIMITS.arrayAttempts, description: "Indexes that are not in their first attempt." },
      ),
    ),
    retried: Type.Optional(
      Int({ description: "Number of the last request to run indexes again that was carried out." }),
    ),
    costUsd: Type.Optional(Type.Number({ minimum: 0, description: "Cost of the jobs whose VMs are deleted, USD." })),
    startTime: Type.Optional(Time("Time at which the first jobs were created.")),
    completionTime: Type.Optional(Time("Time at which the array ended.")),
  },
  { description: "Observed state. Only Berth's array controller writes it." },
)
export type JobArrayStatus = Static<typeof JobArrayStatusSchema>

export type JobArray = KubeObject<JobArraySpec, JobArrayStatus>
export type StoredJobArray = Stored<JobArray>

/** Returns true if the array has ended. */
export function hasArrayEnded({ status }: Pick<JobArray, "status">): boolean {
  return status?.completionTime !== undefined
}

/** Returns the variables of a matrix in their order. */
function variablesOf(matrix: Matrix): [name: string, values: string[]][] {
  return Object.entries(matrix).sort(([a], [b]) => (a < b ? -1 : 1))
}

/** Returns the number of indexes of an array. It may be greater than an array can have. */
export function sizeOf({ size, matrix = {} }: Pick<JobArraySpec, "size" | "matrix">): number {
  return size ?? variablesOf(matrix).reduce((product, [, values]) => product * values.length, 1)
}

/** Returns the value of each variable of the matrix for an index. */
export function combinationAt(matrix: Matrix, index: number): Record<string, string> {
  let rest = index
  const chosen: [string, string][] = []
  for (const [name, values] of variablesOf(matrix).reverse()) {
    chosen.unshift([name, values[rest % values.length] ?? ""])
    rest = Math.floor(rest / values.length)
  }
  return Object.fromEntries(chosen)
}

type ArrayJobs = Pick<JobArraySpec, "jobDefinition" | "size" | "matrix">

/** Returns the spec of an index's job. */
export function jobSpecAt(spec: ArrayJobs, index: number): JobSpec {
  return withVariables(spec, combinationAt(spec.matrix ?? {}, index), index)
}

function withVariables(spec: ArrayJobs, values: Record<string, string>, index: number): JobSpec {
  const { jobDefinition } = spec
  const own = { [ARRAY_ENV.index]: String(index), [ARRAY_ENV.size]: String(sizeOf(spec)) }
  return { ...jobDefinition, env: { ...jobDefinition.env, ...values, ...own } }
}

/** Returns why an array can't create valid jobs; undefined if it can. */
export function arrayError(spec: ArrayJobs): string | undefined {
  const { matrix = {}, jobDefinition } = spec
  const size = sizeOf(spec)
  if (size > LIMITS.arraySize) return `matrix has ${size} combinations; an array has at most ${LIMITS.arraySize}`
  const { env = {}, secretEnv = {} } = jobDefinition
  const own: readonly string[] = Object.values(ARRAY_ENV)
  for (const name of Object.keys(matrix)) {
    if (own.includes(name)) return `matrix.${name} is a variable of Berth: choose another name`
    if (!Object.hasOwn(env, name) && !Object.hasOwn(secretEnv, name)) continue
    return `matrix.${name} is a variable of jobDefinition too: choose another name`
  }
  const errors = findErrors(JobSpecSchema, withVariables(spec, longestOf(matrix), size - 1))
  return errors.length === 0 ? undefined : errors.map(({ detail }) => `jobDefinition.${detail}`).join("; ")
}

/** Returns the longest value of each variable. */
function longestOf(matrix: Matrix): Record<string, string> {
  const longest = (values: string[]) => values.reduce((one, other) => (other.length > one.length ? other : one), "")
  return Object.fromEntries(Object.entries(matrix).map(([name, values]) => [name, longest(values)]))
}

/** Returns the index of an array's Job; undefined if its label is missing or invalid. */
export function arrayIndexOf({ metadata }: { metadata: Pick<ObjectMeta, "labels"> }): number | undefined {
  const label = metadata.labels?.[LABELS.arrayIndex] ?? ""
  return /^(0|[1-9][0-9]{0,4})$/.test(label) ? Number(label) : undefined
}

export const JOB_ARRAY = defineKind({
  kind: "JobArray",
  plural: "jobarrays",
  singular: "jobarray",
  shortNames: ["bja"],
  namespaced: true,
  description: "Creates one Job for each index, a limited number of them at the same time.",
  spec: JobArraySpecSchema,
  status: JobArrayStatusSchema,
  conditions: Object.values(JobArrayCondition),
  owned: ["status"],
  rules: [
    ...nameRules(LIMITS.jobArrayName),
    {
      rule: `self.metadata.name.matches('${JOB_NAME_PATTERN}')`,
      message: "metadata.name must consist of a-z, 0-9 and -, with a letter or digit at both ends",
    },
    {
      rule: "!has(self.spec.after) || self.spec.after.all(one, !has(one.array) || one.array != self.metadata.name)",
      message: "spec.after must not name the array itself",
    },
  ],
  printerColumns: [
    { name: "Phase", type: "string", jsonPath: ".status.phase" },
    { name: "Size", type: "integer", jsonPath: ".status.size" },
    { name: "Running", type: "integer", jsonPath: ".status.counts.running" },
    { name: "Succeeded", type: "integer", jsonPath: ".status.counts.succeeded" },
    { name: "Failed", type: "integer", jsonPath: ".status.counts.failed" },
    { name: "Cost", type: "number", jsonPath: ".status.costUsd", description: "Cost of the ended jobs, USD." },
    { name: "Parallelism", type: "integer", jsonPath: ".spec.parallelism", priority: 1 },
    { name: "Reason", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].reason", priority: 1 },
    AGE_COLUMN,
  ],
})
