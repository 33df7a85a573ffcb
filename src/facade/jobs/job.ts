import { JOB, type Job } from "../../apis/job.ts"
import { mirroredLabels } from "../../apis/labels.ts"
import { ANNOTATIONS, API_VERSION } from "../../apis/meta.ts"
import type { JobSubmission } from "./schema.ts"
import { jobSpecOf } from "./submission.ts"

/** What makes a Job out of a submission, beside the submission. */
export interface JobIdentity {
  namespace: string
  name: string
  /** RFC 3339 with microseconds. */
  createdAt: string
  /** The request's Idempotency-Key and the hash of its body, where it has a key. */
  idempotency?: { key: string; requestHash: string } | undefined
}

/** The Job that a checked submission asks for. */
export function jobOf(submission: JobSubmission, identity: JobIdentity): Job {
  const { namespace, name, createdAt, idempotency } = identity
  const { labels, namePrefix } = submission
  return {
    apiVersion: API_VERSION,
    kind: JOB.kind,
    metadata: {
      name,
      namespace,
      labels: mirroredLabels(labels),
      annotations: {
        [ANNOTATIONS.createdAt]: createdAt,
        ...(namePrefix !== undefined && { [ANNOTATIONS.namePrefix]: namePrefix }),
        ...(idempotency !== undefined && {
          [ANNOTATIONS.idempotencyKey]: idempotency.key,
          [ANNOTATIONS.requestHash]: idempotency.requestHash,
        }),
      },
    },
    spec: jobSpecOf(submission),
  }
}
