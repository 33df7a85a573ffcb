import { JOB, type Job } from "../../core/apis/job.ts"
import { arrayIndexOf, type JobArray, jobSpecAt, type StoredJobArray } from "../../core/apis/jobarray.ts"
import { ANNOTATIONS, API_VERSION, LABELS } from "../../core/apis/meta.ts"
import type { JobSummary } from "../settled-jobs.ts"

/** Returns the name of an index's Job: `<array>-<index>`, and `…-<attempt>` from attempt 2 on. */
export function jobName({ metadata }: Pick<JobArray, "metadata">, index: number, attempt = 1): string {
  const name = `${metadata.name}-${index}`
  return attempt === 1 ? name : `${name}-${attempt}`
}

/** True if this very array created the Job for this index. The name alone proves nothing. */
export function isMadeFor(job: JobSummary, array: StoredJobArray, index: number): boolean {
  return job.metadata.labels?.[LABELS.arrayUid] === array.metadata.uid && arrayIndexOf(job) === index
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
export function buildJob({ metadata, spec }: StoredJobArray, { index, attempt, createdAt }: JobFacts): Job {
  const { name, namespace = "", uid } = metadata
  return {
    apiVersion: API_VERSION,
    kind: JOB.kind,
    metadata: {
      name: jobName({ metadata }, index, attempt),
      namespace,
      labels: { [LABELS.array]: name, [LABELS.arrayUid]: uid, [LABELS.arrayIndex]: String(index) },
      annotations: { [ANNOTATIONS.createdAt]: createdAt },
    },
    spec: jobSpecAt(spec, index),
  }
}
