import { randomBytes } from "node:crypto"
import { secondsBetween } from "./clock.ts"
import type { StoredJob } from "./job.ts"
import { ANNOTATIONS, type ObjectMeta } from "./meta.ts"

/**
 * Returns a value for ANNOTATIONS.submission: the installation and a random id. Every Job of the REST API gets another
 * one.
 */
export function submissionId(installation: string): string {
  return `${installation}/${randomBytes(16).toString("base64url")}`
}

/** Returns the submission of a Job, or of a Launch's Job, for an index. */
export function submissionsOf({ metadata }: { metadata: ObjectMeta }): string[] {
  const submission = metadata.annotations?.[ANNOTATIONS.submission]
  return submission === undefined ? [] : [submission]
}

const SUBMISSION_ID = /^(.+)\/[-\w]{22}$/

/**
 * Greatest age of ANNOTATIONS.createdAt when the API server creates the Job, seconds. It exceeds the longest time that
 * a request can take. An older one is the creation of another Job.
 */
export const GREATEST_AGE_SECONDS = 600

/** Greatest difference between the clocks of façade and API server with which a submission is recorded, seconds. */
const GREATEST_DIFFERENCE_SECONDS = 60

/** Origin of a Job, as its annotations record it. */
export type Origin =
  /** `submission` is present if the REST API created the Job. */
  | { is: "recorded"; submission?: string }
  /** No record: kubectl, a tool or a CronJob created the Job. */
  | { is: "unrecorded" }
  /** A backup tool restored the Job, or a user applied an export. `of` describes the original. */
  | { is: "copy"; of: string; annotation: string }

/**
 * Returns the origin of a Job. A Job of the REST API is recorded from its creation on, by its submission. Any other is
 * recorded when it is adopted, by its uid. An export and a backup have these annotations too.
 */
export function readOrigin({ metadata }: Pick<StoredJob, "metadata">, installation: string): Origin {
  const { uid, annotations, creationTimestamp } = metadata
  const recorded = annotations?.[ANNOTATIONS.recordedUid]
  if (recorded === uid) return { is: "recorded" }
  if (recorded !== undefined) return markCopy(`the Job with the uid ${recorded}`, ANNOTATIONS.recordedUid)
  const submission = annotations?.[ANNOTATIONS.submission] ?? ""
  const [, of] = SUBMISSION_ID.exec(submission) ?? []
  const createdAt = annotations?.[ANNOTATIONS.createdAt] ?? ""
  if (of === undefined || Number.isNaN(Date.parse(createdAt))) return { is: "unrecorded" }
  if (of !== installation) return markCopy("a Job of another installation of Berth", ANNOTATIONS.submission)
  if (secondsBetween(createdAt, creationTimestamp) > GREATEST_AGE_SECONDS) {
    return markCopy(`the Job that the REST API created at ${createdAt}`, ANNOTATIONS.submission)
  }
  return { is: "recorded", submission }
}

/**
 * Returns the uid of the Job that ran: of a copy, the original's. A Job from a backup keeps its log by it, because the API
 * server gives each new object another uid.
 */
export function originalUidOf({ metadata }: Pick<StoredJob, "metadata">): string {
  return metadata.annotations?.[ANNOTATIONS.recordedUid] ?? metadata.uid
}

/** Returns the origin of a copy. @param annotation the one without which the copy is a new Job */
export function markCopy(original: string, annotation: string): Origin & { is: "copy" } {
  return { is: "copy", of: original, annotation }
}

/**
 * Returns true if the clocks of façade and API server agree. Otherwise the age of a submission says nothing, and the Job
 * must not keep it.
 */
export function isSubmissionTimely({ metadata }: Pick<StoredJob, "metadata">): boolean {
  const createdAt = metadata.annotations?.[ANNOTATIONS.createdAt] ?? ""
  return Math.abs(secondsBetween(createdAt, metadata.creationTimestamp)) <= GREATEST_DIFFERENCE_SECONDS
}
