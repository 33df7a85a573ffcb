import { LIMITS } from "../../core/apis/field-limits.ts"
import { CANCELLED, isTerminal, JobReason, type StoredJob } from "../../core/apis/job.ts"
import { pricesOf, type StoredLaunch } from "../../core/apis/launch.ts"
import { ANNOTATIONS } from "../../core/apis/meta.ts"
import { sumOfParts } from "../../core/apis/price.ts"
import { openPrerequisites } from "../../core/order/prerequisites.ts"
import { idlenessOf, isKept } from "../../core/reuse/reuse.ts"
import { type CancelState, hasStrictCap } from "../../market/placement/caps.ts"
import { mayBeKept } from "../../market/placement/idle.ts"
import { reasonToWait } from "../../market/placement/inputs.ts"
import type { Market } from "../../market/placement/market.ts"
import { bootOverrun, hasLostTakeover } from "../../market/placement/outcome.ts"
import { type PlaceVerdict, place } from "../../market/placement/place.ts"
import type { JobSettings } from "../../market/placement/settings.ts"
import { deriveFacts, type JobFacts, type JobObservation, type LaunchFacts } from "./facts.ts"
import { isUpToDate, launchObject } from "./launch-spec.ts"
import { type JobDecision, render } from "./render.ts"
import { failureText, placedText, retryText, unplacedText, withGrownMemory } from "./retries.ts"
import type { Step, Verdict } from "./step.ts"

/**
 * Decides the next step of a Job: derives the facts, takes the first check that applies, and renders its step. Pure, and
 * depends only on the present state, never on what has changed.
 */
export function decide(job: StoredJob, observed: JobObservation, now: Date, settings: JobSettings): JobDecision {
  const facts = deriveFacts(job, observed, now, settings)
  return render(facts, nextStep(facts))
}

function nextStep(facts: JobFacts): Step {
  for (const { check } of CHECKS) {
    const step = check(facts)
    if (step !== undefined) return step
  }
  throw new Error("the last check must apply to every job")
}

/** One check of a Job. */
export interface Check {
  /** Phases to which it applies, for ARCHITECTURE.md. */
  phase: string
  /** Observations and what follows from each, for ARCHITECTURE.md. */
  rows: readonly (readonly [observation: string, next: string])[]
  /** Returns the step if the check applies. */
  check: (facts: JobFacts) => Step | undefined
}

/** The life of a job. The first check that applies decides. ARCHITECTURE.md has this table. */
export const CHECKS: readonly Check[] = [
  {
    phase: "any",
    rows: [["deleted", "its VMs end, then the finalizer is removed; a settled job has none"]],
    check: ({ job }) => (job.metadata.deletionTimestamp === undefined ? undefined : { isDeleted: true }),
  },
  {
    phase: "ended",
    rows: [
      ["no VM is left, and all readers have seen the end", "settled: deleted after its TTL"],
      ["its VM waits for another job (`reuse`)", "settled once that job has the VM, or the VM is deleted"],
      ["more VMs wait than a cap allows (`maxIdleVms`)", "the one that has been idle for the longest time ends"],
      [
        "its VM is kept for sessions (`debug`)",
        "settled after that VM is deleted: at its time, by request, for a cap that cancels jobs, or with its project",
      ],
    ],
    check: whenEnded,
  },
  {
    phase: "not ended",
    rows: [["`spec.cancelled`", "cancelled"]],
    check: ({ job, alive }) => (job.spec.cancelled === true ? { verdict: CANCELLED, end: alive } : undefined),
  },
  {
    phase: "queued",
    rows: [["the Job is a copy of another one", "queued (Held)"]],
    check: checkOrigin,
  },
  {
    phase: "booting, running",
    rows: [
      ["the agent reports exit code 0", "succeeded"],
      [
        "the agent reports another exit code, and no retry is left. With retries it runs the container again in the same VM",
        "failed (ContainerFailed)",
      ],
      [
        "the agent reports a failure for which a retry rule, or a fault that passes, gives the job a new VM",
        "the checks below: queued (Retrying) until this VM is deleted",
      ],
    ],
    check: concludeRun,
  },
  {
    phase: "queued, booting",
    rows: [
      [
        "`maxQueueSeconds` are over, and no container was ever started",
        "failed (QueueDeadlineExceeded), after the VM's Launch ended in the version that was read",
      ],
    ],
    check: (facts) => (facts.left.queue <= 0 ? queuedTooLong(facts) : undefined),
  },
  {
    phase: "booting, running",
    rows: [["a cap is reached that cancels running jobs", "cancelled (CapReached)"]],
    check: whenLive(({ observed: { cancel } }, launch) =>
      cancel?.message === undefined
        ? undefined
        : { verdict: { phase: "cancelled", reason: JobReason.CapReached, message: cancel.message }, end: [launch] },
    ),
  },
  {
    phase: "booting, running",
    rows: [["the VM would cost more than `maxCostUsd`", "failed (BudgetExceeded)"]],
    check: whenLive(({ job, left }, launch) =>
      left.budget <= 0 ? { verdict: budgetExceeded(job), end: [launch] } : undefined,
    ),
  },
  {
    phase: "queued, booting",
    rows: [
      [
        "the agent has not registered in the machine's time to boot, or the container not started 30 minutes after",
        "queued: that VM is ended; the next one",
      ],
      ["the cloud has not answered for the same time", "queued: the next one, once it is certain that there is no VM"],
    ],
    check: whenLive(bootOverdue),
  },
  {
    phase: "booting",
    rows: [["the VM is requested, boots or prepares the container", "booting"]],
    check: whenLive(booting),
  },
  {
    phase: "running",
    rows: [["the timeout", "failed (DeadlineExceeded)"]],
    check: whenLive(({ job, left, settings }, launch) =>
      left.run <= 0 ? { verdict: deadlineExceeded(job, settings), end: [launch] } : undefined,
    ),
  },
  {
    phase: "queued, booting, running",
    rows: [["the agent has started the container, maybe before `booting` was written", "running"]],
    check: whenLive(running),
  },
  {
    phase: "queued",
    rows: [["its project or organization is being deleted", "cancelled (ProjectDeleting)"]],
    check: ({ observed: { ending }, alive }) =>
      ending === undefined
        ? undefined
        : {
            verdict: {
              phase: "cancelled",
              reason: JobReason.ProjectDeleting,
              message: `${ending}: its queued jobs are cancelled`,
            },
            end: alive,
          },
  },
  {
    phase: "booting, running",
    rows: [
      ["the cloud confirms that the VM is deleted", "queued, or failed (VMLost) above `maxLostVms`"],
      ["the cloud has preempted the VM", "queued, or failed (Preempted) above `maxPreemptions`"],
      ["a run failed or a VM was lost, and 20 VMs followed such ends before", "failed (LaunchLimitExceeded)"],
      ["the VM was billed, and never started the container", "queued, or failed (LaunchLimitExceeded) after five"],
    ],
    check: limitReached,
  },
  {
    phase: "queued",
    rows: [["earlier VMs have used the timeout", "failed (DeadlineExceeded)"]],
    check: ({ job, left, settings, alive }) =>
      left.timeout <= 0 ? { verdict: deadlineExceeded(job, settings), end: alive } : undefined,
  },
  {
    phase: "queued",
    rows: [["its last VM may still exist", "queued"]],
    check: waitsForEnd,
  },
  {
    phase: "queued",
    rows: [
      [
        "a job or an array of its `after` doesn't exist, has not ended, or waits for this job",
        "queued (JobMissing, WaitsForJob, DependencyCycle)",
      ],
      ["one of them ended with another outcome than it needs", "failed (DependencyFailed)"],
      ["its status has not all their outcomes yet", "queued: they are written before a VM is bought"],
    ],
    check: checkPrerequisites,
  },
  {
    phase: "queued",
    rows: [["a limit of its project is reached", "queued (ProjectLimit)"]],
    check: ({ observed: { overLimit }, settings }) =>
      overLimit === undefined ? undefined : waits(JobReason.ProjectLimit, overLimit, settings.limitRetrySeconds),
  },
  {
    phase: "queued",
    rows: [["a Secret of `secretEnv` is missing", "queued (SecretMissing), until it is there"]],
    // A new Secret requeues the job.
    check: ({ observed: { secretMissing } }) =>
      secretMissing === undefined ? undefined : waits(JobReason.SecretMissing, secretMissing),
  },
  {
    phase: "queued",
    rows: [["a bucket of its volumes is not found yet, or no connection has access", "queued (BucketNotReached)"]],
    check: withoutBuckets,
  },
  {
    phase: "queued",
    rows: [["the registry has not said yet for which architectures the image is", "queued"]],
    // The lookup times out after a few seconds; then the default architecture is assumed.
    check: ({ job, observed: { image } }) =>
      image?.state === "looking"
        ? waits(JobReason.Queued, `resolving the CPU architectures of image ${job.spec.image}`, LOOK_AGAIN_SECONDS)
        : undefined,
  },
  {
    phase: "queued",
    rows: [
      [
        "an offer fits",
        "booting: the Launch is written, which is the decision; the status follows within 2 s, with the VM if there is one",
      ],
      ["an offer fits, but not now (capacity, quota)", "queued: the next offer; a rejected one is in cooldown"],
      [
        "a cap or its concurrency group is full, or jobs ahead in the line take what is left",
        "queued (CapReached, GroupFull), in the project's line",
      ],
      ["nothing in any catalogue fits", "failed (NoOffer), with the nearest miss"],
      ["the registry says that there is no such image", "failed (ImagePullFailed)"],
      ["too little of `maxCostUsd` is left for a VM", "failed (BudgetExceeded)"],
    ],
    check: findPlace,
  },
]

/** Returns a check of a job whose newest VM boots or runs. */
function whenLive(check: (facts: JobFacts, launch: StoredLaunch) => Step | undefined): Check["check"] {
  return (facts) => (facts.newest?.outcome.kind === "live" ? check(facts, facts.newest.launch) : undefined)
}

/** Follows the VMs of a job that has ended. One that begins to wait may be one too many. */
function whenEnded({ job, unkept, alive, keptUntil, observed: { surplusIdle, cancel } }: JobFacts): Step | undefined {
  if (!isTerminal(job.status?.phase)) return undefined
  const isWaiting = alive.some((launch) => idlenessOf(launch).is === "idle")
  const end = isWaiting ? [...unkept, ...(surplusIdle?.() ?? [])] : unkept
  return keptUntil !== undefined && cancel !== undefined ? { end, requeueAfter: capCheckSeconds(cancel) } : { end }
}

function waits(reason: JobReason, message: string, requeueAfter?: number): Step {
  const verdict = { phase: "queued", reason, message } as const
  return requeueAfter === undefined ? { verdict } : { verdict, requeueAfter }
}

function fails(reason: JobReason, message: string): { verdict: Verdict } {
  return { verdict: { phase: "failed", reason, message } }
}

function checkOrigin({ origin }: JobFacts): Step | undefined {
  if (origin.is !== "copy") return undefined
  const message =
    `this Job is a copy of ${origin.of}, which already ran, so Berth does not run it. ` +
    `To run it, remove its annotation ${origin.annotation}`
  return waits(JobReason.Held, message)
}

/** Delay before a live read looks again for a prerequisite that doesn't exist, seconds. A new one usually requeues the job. */
const MISSING_SECONDS = 60

function checkPrerequisites({ job, observed: { prerequisites }, alive }: JobFacts): Step | undefined {
  if (prerequisites === undefined) return undefined
  const { obstacle } = prerequisites
  if (obstacle?.reason === "DependencyFailed") return { ...fails(obstacle.reason, obstacle.message), end: alive }
  if (obstacle !== undefined)
    return waits(obstacle.reason, obstacle.message, obstacle.reason === "JobMissing" ? MISSING_SECONDS : undefined)
  const isRecorded = openPrerequisites(job).length === 0
  return isRecorded ? undefined : waits(JobReason.Queued, "all that it waited for has ended")
}

/** Returns the step after the agent reported the end of the run; undefined if the job gets a new VM after it. */
function concludeRun(facts: JobFacts): Step | undefined {
  const { newest, unkept } = facts
  const { latest } = facts.retries
  if (newest?.outcome.kind !== "finished") return undefined
  if (latest !== undefined && latest.refusal === undefined) return undefined
  const { reason, cause, exitCode, message, time } = newest.outcome.finish
  const isSuccess = reason === "Succeeded"
  const code = exitCode === undefined ? "" : ` (exit code ${exitCode})`
  const what = message ?? (isSuccess ? `the container succeeded${code}` : `the container failed${code}`)
  const kept = isSuccess ? undefined : keptText(facts, newest.launch)
  const said = [what, latest?.refusal, kept].filter(Boolean).join("; ")
  const phase = isSuccess ? "succeeded" : "failed"
  const why = cause === "Idle" && !isSuccess ? JobReason.Idle : reason
  return { verdict: { phase, reason: why, message: said, finishTime: time }, end: unkept }
}

/** Returns until when a failed job's VM is kept and what that costs, or why it is not; undefined: the job did not ask. */
function keptText({ job, keptUntil, settings }: JobFacts, launch: StoredLaunch): string | undefined {
  if (job.spec.debug === undefined) return undefined
  const idleness = idlenessOf(launch)
  if (idleness.is !== "debug" || keptUntil === undefined)
    return settings.allowsSessions
      ? undefined
      : "its VM is not kept, because this installation allows no sessions (--sessions)"
  const usd = (sumOfParts(pricesOf(launch)) * idleness.seconds) / 3600
  return `its VM is kept until ${keptUntil} and costs up to $${usd.toFixed(2)} more: berth debug ${job.metadata.name}`
}

function queuedTooLong({ job: { spec, status }, alive }: JobFacts): Step {
  const { reason = JobReason.Queued, message = "it was not considered yet" } = status ?? {}
  const limit = `the container did not start within its maxQueueSeconds of ${spec.maxQueueSeconds} s`
  const failed = fails(JobReason.QueueDeadlineExceeded, `${limit}. The last reason was ${reason}: ${message}`)
  return { ...failed, end: alive, isUnstarted: true }
}

function budgetExceeded({ spec }: StoredJob): Verdict {
  const message = `the VM was ended before the job costs more than its maxCostUsd of ${spec.maxCostUsd}`
  return { phase: "failed", reason: JobReason.BudgetExceeded, message }
}

function deadlineExceeded({ spec }: StoredJob, settings: JobSettings): Verdict {
  const timeout = spec.timeoutSeconds ?? settings.timeoutSeconds
  const message = `not finished within its timeout of ${timeout} s; raise timeoutSeconds if it needs longer`
  return { phase: "failed", reason: JobReason.DeadlineExceeded, message }
}

function hasStarted({ status }: StoredLaunch): boolean {
  return status?.agent?.startTime !== undefined
}

function unansweredCall({ status }: StoredLaunch): { message: string } | undefined {
  return status?.vm === undefined ? status?.unanswered : undefined
}

function bootOverdue({ left }: JobFacts, launch: StoredLaunch): Step | undefined {
  if (hasStarted(launch) || left.boot === undefined || left.boot > 0) return undefined
  const { number, bootDeadlineSeconds } = launch.spec
  const silence = unansweredCall(launch)
  const message =
    silence === undefined
      ? `launch ${number}: ${bootOverrun(launch)}; Berth terminates its VM`
      : `launch ${number} got no VM within ${bootDeadlineSeconds} s: ${silence.message}`
  return { ...waits(JobReason.BootDeadlineExceeded, message), end: [launch] }
}

function booting({ left }: JobFacts, launch: StoredLaunch): Step | undefined {
  if (hasStarted(launch)) return undefined
  const silence = unansweredCall(launch)
  const placement = launch.metadata.annotations?.[ANNOTATIONS.placementReason] ?? "preparing the VM"
  const why = silence === undefined ? placement : `no VM yet: ${silence.message}`
  const message = `launch ${launch.spec.number}: ${why}`
  const requeueAfter = left.boot === undefined ? undefined : Math.min(left.boot, left.budget) + 1
  const verdict = { phase: "booting", reason: JobReason.Booting, message } as const
  return requeueAfter === undefined ? { verdict } : { verdict, requeueAfter }
}

/** Longest delay before a running job under a cap that cancels is checked again, seconds. New VMs spend it sooner. */
const CAP_CHECK_SECONDS = 60

function capCheckSeconds({ secondsLeft = Number.POSITIVE_INFINITY }: CancelState): number {
  return Math.min(CAP_CHECK_SECONDS, secondsLeft)
}

function running({ left, observed: { cancel } }: JobFacts, launch: StoredLaunch): Step {
  const capLeft = cancel === undefined ? Number.POSITIVE_INFINITY : capCheckSeconds(cancel)
  const requeueAfter = Math.min(left.run, left.budget, capLeft) + 1
  const message = `the container runs on ${launch.status?.vm?.id ?? launch.metadata.name}`
  return { verdict: { phase: "running", reason: JobReason.Started, message }, requeueAfter }
}

/** Checks the limits of lost VMs, of preemptions, of all new VMs, and of VMs that never started the container. */
function limitReached(facts: JobFacts): Step | undefined {
  const { job, losses, settings, alive } = facts
  const { lost, preempted } = losses
  const { maxPreemptions = Number.POSITIVE_INFINITY, maxLostVms = settings.maxLostVms } = job.spec
  if (lost > maxLostVms) {
    const message = `lost ${countVms(lost)}, and maxLostVms is ${maxLostVms}`
    return { ...fails(JobReason.VMLost, message), end: alive }
  }
  if (preempted > maxPreemptions) {
    const message = `the cloud preempted ${preempted} VMs, and maxPreemptions is ${maxPreemptions}`
    return { ...fails(JobReason.Preempted, message), end: alive }
  }
  return newVmsUsed(facts) ?? bootsFailed(facts)
}

function countVms(count: number): string {
  return count === 1 ? "1 VM" : `${count} VMs`
}

/** Checks the limit of VMs after failed runs and lost VMs, whatever rules and maxLostVms allow. */
function newVmsUsed({ losses: { lost }, retries: { past, latest }, alive }: JobFacts): Step | undefined {
  const failed = past.length + (latest === undefined ? 0 : 1)
  if (failed + lost <= LIMITS.newVms) return undefined
  const why = latest === undefined ? "" : `; ${failureText(latest)}`
  const message = `${failed} runs failed and ${countVms(lost)} ${lost === 1 ? "was" : "were"} lost, and a job gets at most ${LIMITS.newVms} new VMs after such ends${why}`
  return { ...fails(JobReason.LaunchLimitExceeded, message), end: alive }
}

function bootsFailed({ launches, settings, alive }: JobFacts): Step | undefined {
  const failed = launches.flatMap(({ launch, outcome }) => (outcome.kind === "bootFailed" ? [{ launch, outcome }] : []))
  if (failed.length < settings.maxBootFailures) return undefined
  const last = failed.findLast(({ outcome }) => outcome.reason === JobReason.BootFailed)
  const why = last === undefined ? "" : `; launch ${last.launch.spec.number}: ${last.outcome.message}`
  const message = `${failed.length} VMs were billed but never started the container${why}`
  return { ...fails(JobReason.LaunchLimitExceeded, message), end: alive }
}

/** Waits until no earlier VM is left. One that cannot run containers is ended, and one that waits for another job. */
function waitsForEnd({ launches, retries: { latest } }: JobFacts): Step | undefined {
  const alive = launches.filter(({ isOver }) => !isOver)
  const last = alive.at(-1)
  if (last === undefined) return undefined
  const reason = waitReason(last)
  const isUseless = ({ launch, outcome }: LaunchFacts) => outcome.kind === "bootFailed" || isKept(launch)
  const end = alive.filter(isUseless).map(({ launch }) => launch)
  return { ...waits(reason, latest === undefined ? waitMessage(alive) : retryText(latest)), end }
}

function waitReason({ launch, outcome }: LaunchFacts): JobReason {
  if (outcome.kind === "lost" || outcome.kind === "bootFailed") return outcome.reason
  if (outcome.kind === "finished") return JobReason.Retrying
  if (hasLostTakeover(launch)) return JobReason.TakeoverLost
  return outcome.kind === "unused" ? JobReason.BootDeadlineExceeded : JobReason.Queued
}

function waitMessage(alive: JobFacts["launches"]): string {
  for (const { launch, outcome } of alive)
    if (outcome.kind === "bootFailed" && outcome.reason === JobReason.BootFailed)
      return `launch ${launch.spec.number}: ${outcome.message}; Berth tries the next machine after this VM is deleted`
  const unsettled = alive.find(({ launch }) => unansweredCall(launch) !== undefined)?.launch
  if (unsettled === undefined)
    return `waiting until the VM of launch ${alive.map(({ launch }) => launch.spec.number).join(", ")} is deleted`
  const { spec, status } = unsettled
  return `waiting until the cloud says if launch ${spec.number} has a VM: ${status?.unanswered?.message ?? ""}`
}

/** Delay before checking again for a lookup's answer, seconds. */
const LOOK_AGAIN_SECONDS = 1

/** Waits for access to the buckets. A user may create the bucket or grant access at any time. */
function withoutBuckets({ observed: { volumes }, settings }: JobFacts): Step | undefined {
  if (volumes === undefined || volumes.kind === "found") return undefined
  const delay = volumes.kind === "looking" ? LOOK_AGAIN_SECONDS : settings.bucketRetrySeconds
  return waits(reasonToWait(volumes), volumes.message, delay)
}

/** Finds an offer for a job without a VM. */
function findPlace(facts: JobFacts): Step {
  const { observed, budget, nextNumber: number, retries } = facts
  const volumes = observed.volumes?.kind === "found" ? observed.volumes : undefined
  const image = observed.image
  const open = observed.market(facts.waiter)
  const market = {
    ...open,
    kept: open.kept?.filter((holder) => isUpToDate(holder, observed.installation)) ?? [],
    ...(volumes && { buckets: volumes.places }),
    ...(image && { image }),
    budget,
  }
  const found = placeFor(facts, market)
  switch (found.kind) {
    case "noOffer":
      return fails(JobReason.NoOffer, unplacedText(retries.open, found.message))
    case "noImage":
      return fails(JobReason.ImagePullFailed, found.message)
    case "overBudget":
      return fails(JobReason.BudgetExceeded, unplacedText(retries.open, found.message))
    case "wait":
      return { ...waitForPlace(found, market.line), ...endIdle(found, open) }
    case "placed": {
      const { placement } = found
      const why = [retries.open && placedText(retries.open, placement), found.why].filter(Boolean).join("; ")
      const isStrict = budget !== undefined || hasStrictCap(market.levels)
      const { offer, prices, launchAccount } = placement
      const chosen = { number, offer, prices, connection: launchAccount.connection, why, volumes: volumes?.recorded }
      const message = `launch ${number}: ${why}`
      return {
        verdict: { phase: "booting", reason: JobReason.Booting, message, placement: chosen },
        create: launchObject(facts, {
          ...{ placement, why, isStrict, volumes: volumes?.volumes },
          mayBeKept: mayBeKept(offer, market),
        }),
        isStrict,
      }
    }
  }
}

/** Ends the VM that has been idle for the longest time, if a job waits for room under caps. No group gets room by it. */
function endIdle({ reason, needs }: Extract<PlaceVerdict, { kind: "wait" }>, { kept = [] }: Market): Pick<Step, "end"> {
  if (reason !== JobReason.CapReached || needs === undefined) return {}
  const longest = kept.findLast((holder) => idlenessOf(holder).is === "idle")
  return longest === undefined ? {} : { end: [longest] }
}

/** Number of jobs at the head of a line that are checked again without an event. A month may begin, or caps may change. */
const HEAD_OF_LINE = 16

function waitForPlace(
  { reason, message, seconds, needs }: Extract<PlaceVerdict, { kind: "wait" }>,
  line: Market["line"],
): Step {
  if (needs === undefined) return waits(reason, message, seconds)
  const isAtHead = (line?.position ?? 1) <= HEAD_OF_LINE
  return { ...waits(reason, message, isAtHead ? seconds : undefined), needs }
}

/**
 * Finds a place, with more memory after the container ran out of it. A `spotFirst` job whose spot VMs were preempted gets an on-demand VM, or a spot VM if there is no
 * on-demand one now.
 */
function placeFor({ job: asked, retries, fallback, now, settings }: JobFacts, market: Market): PlaceVerdict {
  const job = withGrownMemory(asked, retries)
  if (fallback !== undefined) {
    const onDemand = { ...job, spec: { ...job.spec, provisioning: "onDemand" as const } }
    const found = place(onDemand, market, now, settings)
    if (found.kind === "placed") return { ...found, why: `${found.why}; ${fallback}` }
  }
  return place(job, market, now, settings)
}
