import { CRON_JOB_ANNOTATIONS, type StoredCronJob } from "../../../core/apis/cronjob.ts"
import { isTerminal, type Job, type StoredJob } from "../../../core/apis/job.ts"
import { LABELS } from "../../../core/apis/meta.ts"
import { fromMetadataName } from "../../../core/apis/names.ts"
import type { KubeClient } from "../../../core/kube/client.ts"
import { JOBS } from "../../../core/resources.ts"
import { Problem } from "../../http/problem.ts"
import type { KeyedMutex } from "../../idempotency.ts"
import type { Jobs, NewJob, Submitter } from "../jobs/jobs.ts"
import { type JobIdentity, jobWith } from "../jobs/submission.ts"

export interface RunOptions {
  submitter: Pick<Submitter, "create" | "earlier">
  jobs: Pick<Jobs, "cancelFound">
  /** Mutex of all replicas. */
  creations: KeyedMutex
  /** Client that reads the jobs live. */
  reader: Pick<KubeClient, "list">
}

/**
 * Creates a job of a CronJob now, beside its schedule. The job belongs to the CronJob as that of a tick does, and its
 * concurrency policy holds: Replace cancels the unfinished jobs. A paused CronJob runs too.
 * @throws Problem 409 with the policy Forbid while a job is unfinished, and what `Submitter.create` throws
 */
export async function runNow(cronJob: StoredCronJob, key: string | undefined, options: RunOptions): Promise<StoredJob> {
  const { submitter, jobs, creations } = options
  const wanted = runOf(cronJob)
  const create = () => submitter.create(wanted, key)
  const { concurrencyPolicy } = cronJob.spec
  if (concurrencyPolicy === "Forbid") {
    const { namespace, uid } = cronJob.metadata
    // Without the turn, two requests would both find no unfinished job.
    return creations.runExclusive(`runs/${namespace}/${uid}`, async () => {
      const earlier = key === undefined ? undefined : await submitter.earlier(wanted.request, key)
      if (earlier === undefined) requireNone(cronJob, await unfinishedOf(cronJob, options))
      return create()
    })
  }
  const created = await create()
  if (concurrencyPolicy === "Replace") {
    const others = (await unfinishedOf(cronJob, options)).filter(({ metadata }) => isOlder(metadata, created.metadata))
    await Promise.all(others.map((job) => jobs.cancelFound(job).catch(ignoreEnded)))
  }
  return created
}

/** Returns the Job of a manual run. Its name has a random part instead of a tick, and is never too long. */
function runOf({ metadata: { name, uid }, spec: { jobDefinition } }: StoredCronJob): NewJob {
  const namePrefix = fromMetadataName(name)
  return {
    namePrefix,
    ...(jobDefinition.workdir !== undefined && { workdir: jobDefinition.workdir }),
    request: { cronJob: uid },
    jobOf: (identity: JobIdentity): Job => {
      const job = jobWith(jobDefinition, namePrefix, identity)
      const { labels, annotations } = job.metadata
      const marks = { [CRON_JOB_ANNOTATIONS.name]: name, [CRON_JOB_ANNOTATIONS.instantiate]: "manual" }
      return {
        ...job,
        metadata: {
          ...job.metadata,
          labels: { ...labels, [LABELS.cronJobUid]: uid },
          annotations: { ...annotations, ...marks },
        },
      }
    },
  }
}

/** Lists the CronJob's jobs that have not ended, by a live read: the schedule may have created one just now. */
async function unfinishedOf({ metadata }: StoredCronJob, { reader }: RunOptions): Promise<StoredJob[]> {
  const { namespace, uid } = metadata
  const labelSelector = `${LABELS.cronJobUid}=${uid}`
  const { items } = await reader.list(JOBS, { namespace, labelSelector, fieldSelector: "status.settled!=true" })
  return items.filter(({ status }) => !isTerminal(status?.phase))
}

/** @throws Problem 409 */
function requireNone({ metadata }: StoredCronJob, unfinished: readonly StoredJob[]): void {
  const [first] = unfinished
  if (first === undefined) return
  const others = unfinished.length === 1 ? "" : ` and ${unfinished.length - 1} more`
  const detail =
    `The concurrencyPolicy of the cronjob ${fromMetadataName(metadata.name)} is Forbid, and its job ` +
    `${first.metadata.name}${others} has not ended. No job was created: wait for its end, or cancel it.`
  throw new Problem({ type: "run-in-progress", status: 409, detail })
}

/** A repeated request must not cancel jobs that were created after its own. */
function isOlder(one: StoredJob["metadata"], other: StoredJob["metadata"]): boolean {
  return one.uid !== other.uid && one.creationTimestamp <= other.creationTimestamp
}

function ignoreEnded(error: unknown): void {
  if (!(error instanceof Problem) || ![404, 409].includes(error.status)) throw error
}
