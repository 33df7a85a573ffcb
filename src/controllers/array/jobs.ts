import { JOB, type Job } from "../../apis/job.ts"
import {
  ARRAY_ENV,
  combinationOf,
  type JobArray,
  type Matrix,
  type StoredJobArray,
  sizeOf,
} from "../../apis/jobarray.ts"
import { LIMITS } from "../../apis/limits.ts"
import { ANNOTATIONS, API_VERSION, LABELS } from "../../apis/meta.ts"
import { errorsOfObject } from "../../apis/validate.ts"
import type { JobSummary } from "../settled-jobs.ts"

/** Returns the name of an index's Job: `<array>-<index>`, and `…-<attempt>` from attempt 2 on. */
export function jobName({ metadata }: Pick<JobArray, "metadata">, index: number, attempt = 1): string {
  const name = `${metadata.name}-${index}`
  return attempt === 1 ? name : `${name}-${attempt}`
}

/** Returns the index of an array's Job; undefined if its label is missing or invalid. */
export function indexOf({ metadata }: Pick<JobSummary, "metadata">): number | undefined {
  const label = metadata.labels?.[LABELS.arrayIndex] ?? ""
  return /^(0|[1-9][0-9]{0,4})$/.test(label) ? Number(label) : undefined
}

/** True if this very array created the Job for this index. The name alone proves nothing. */
export function isMadeFor(job: JobSummary, array: StoredJobArray, index: number): boolean {
  return job.metadata.labels?.[LABELS.arrayUid] === array.metadata.uid && indexOf(job) === index
}

/** Inputs of an index's Job besides the array. */
export interface JobFacts {
  index: number
  attempt: number
  /** For ANNOTATIONS.createdAt. */
  createdAt: string
}

/**
 * Returns the Job of an index. It has no owner reference: the garbage collector must not delete running Jobs, and those
 * that have ended stay after the array is deleted.
 */
export function jobOf(array: StoredJobArray, { index, attempt, createdAt }: JobFacts): Job {
  const { matrix = {} } = array.spec
  return jobWith(array, combinationOf(matrix, index), { index, attempt, createdAt })
}

function jobWith(
  { metadata, spec }: StoredJobArray,
  values: Record<string, string>,
  { index, attempt, createdAt }: JobFacts,
): Job {
  const { name, namespace = "", uid } = metadata
  const { jobDefinition } = spec
  const own = { [ARRAY_ENV.index]: String(index), [ARRAY_ENV.size]: String(sizeOf(spec)) }
  return {
    apiVersion: API_VERSION,
    kind: JOB.kind,
    metadata: {
      name: jobName({ metadata }, index, attempt),
      namespace,
      labels: { [LABELS.array]: name, [LABELS.arrayUid]: uid, [LABELS.arrayIndex]: String(index) },
      annotations: { [ANNOTATIONS.createdAt]: createdAt },
    },
    spec: { ...jobDefinition, env: { ...jobDefinition.env, ...values, ...own } },
  }
}

/** Returns why an array can't create valid Jobs; undefined if it can. */
export function definitionError(array: StoredJobArray): string | undefined {
  const { matrix = {}, jobDefinition } = array.spec
  const size = sizeOf(array.spec)
  if (size > LIMITS.arraySize) {
    return `matrix has ${size} combinations; an array has at most ${LIMITS.arraySize}`
  }
  const taken = Object.keys(matrix).find((name) => isVariable(jobDefinition, name) || isOwn(name))
  if (taken !== undefined) {
    const where = isOwn(taken) ? "is a variable of Berth" : "is a variable of jobDefinition too"
    return `matrix.${taken} ${where}: choose another name`
  }
  const errors = errorsOfObject(JOB, jobWith(array, longestOf(matrix), { index: size - 1, attempt: 1, createdAt: "" }))
  if (errors.length === 0) return undefined
  return errors.map(({ detail }) => detail.replaceAll(/\bspec\./g, "jobDefinition.")).join("; ")
}

function isVariable({ env = {}, secretEnv = {} }: StoredJobArray["spec"]["jobDefinition"], name: string): boolean {
  return Object.hasOwn(env, name) || Object.hasOwn(secretEnv, name)
}

function isOwn(name: string): boolean {
  return Object.values<string>(ARRAY_ENV).includes(name)
}

/** Returns the longest value of each variable. */
function longestOf(matrix: Matrix): Record<string, string> {
  const longest = (values: string[]) => values.reduce((one, other) => (other.length > one.length ? other : one), "")
  return Object.fromEntries(Object.entries(matrix).map(([name, values]) => [name, longest(values)]))
}
