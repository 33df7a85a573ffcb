import Type, { type Static } from "typebox"
import { timestamp } from "../../../core/apis/clock.ts"
import { findCondition } from "../../../core/apis/conditions.ts"
import { creationTimeOf } from "../../../core/apis/creation-times.ts"
import { JobCondition, type RefusedOffer, type StoredJob, VM_STATES } from "../../../core/apis/job.ts"
import {
  BOOT_FAILURES,
  bootFailureOf,
  FINISH_CAUSES,
  FINISH_REASONS,
  LAUNCH_PHASES,
  LaunchCondition,
  type LaunchStatus,
  LOSSES,
  type StoredLaunch,
} from "../../../core/apis/launch.ts"
import { fromMetadataName } from "../../../core/apis/names.ts"
import { OFFER_PROVISIONINGS } from "../../../core/apis/offer.ts"
import { REFUSALS } from "../../../core/apis/refusals.ts"
import { COMPONENT, StringEnum } from "../../../core/apis/schema.ts"
import { conditionsField, toConditionRecords } from "../../../core/records/conditions.ts"
import { inUtc } from "../../../core/records/job.ts"
import { nullable } from "../../../core/records/nullable.ts"
import { debugUntil, idleUntil } from "../../../core/reuse/reuse.ts"
import { describeOffer, usd } from "../../../market/router/explain.ts"

/** Records of a job's VMs, and the story of the job that follows from them. Pure. */

/** Reason, message and time of a failure; null: none. */
function failureOf<const Reason extends string>(component: string, reasons: readonly Reason[], description: string) {
  return Type.Unsafe<{ reason: Reason; message: string; at: string } | null>({
    type: ["object", "null"],
    required: ["reason", "message", "at"],
    properties: {
      reason: StringEnum(reasons),
      message: Type.String(),
      at: Type.String({ format: "date-time" }),
    },
    description,
    [COMPONENT]: component,
  })
}

function time(description: string) {
  return Type.Unsafe<string | null>({ type: ["string", "null"], format: "date-time", description })
}

/** One VM of a job, or one attempt to get one. */
export const LaunchRecordSchema = Type.Object(
  {
    name: Type.String({ description: "Name of the Launch, which others have in took_over and handed_to." }),
    number: Type.Integer({ minimum: 1, description: "Number of the VM among those of the job, from 1." }),
    phase: StringEnum(LAUNCH_PHASES),
    provider: Type.String(),
    region: Type.String(),
    zone: nullable<string>("string", "Null: any zone of the region."),
    instance_type: Type.String(),
    provisioning: StringEnum(OFFER_PROVISIONINGS),
    hourly_price_usd: Type.Number(),
    connection: nullable<string>("string", "Connection whose account is billed. Null: none is needed."),
    vm_status: Type.Unsafe<(typeof VM_STATES)[number] | null>({
      type: ["string", "null"],
      enum: [...VM_STATES, null],
      description: "State of the VM. Null: the cloud has not confirmed one.",
    }),
    vm_instance_id: nullable<string>("string", "Id of the VM in the cloud."),
    ip_address: nullable<string>("string", "Public IP address of the VM."),
    requested_at: Type.String({ format: "date-time", description: "Time at which Berth decided to request the VM." }),
    created_at: time("Time at which billing began."),
    registered_at: time("Time at which the VM's agent registered."),
    started_at: time("Time of the container's first start on the VM."),
    finished_at: time("Time at which the container's last run ended."),
    idle_since: time("Time from which the VM waited for another job. Null: it never did."),
    idle_until: time("Time until which the VM waits for another job. Null: it does not wait."),
    ended_at: time("Time at which billing ended, for this job."),
    cost_usd: nullable<number>("number", "Cost of the VM, USD. Null until it is deleted or another job has it."),
    idle_usd: nullable<number>("number", "Part of the cost in which the VM waited for another job. Null: none yet."),
    warm: Type.Boolean({ description: "True: the job takes over a VM that runs already, instead of a new one." }),
    took_over: nullable<string>("string", "Launch whose idle VM this one takes over. Null: a new VM."),
    handed_to: nullable<string>("string", "Launch that has taken over the VM. Null: none has."),
    exit_code: nullable<number>("integer", "Exit code of the container's last run."),
    refusal: failureOf("LaunchRefusal", REFUSALS, "Rejection by the cloud: there was no VM."),
    boot_failure: failureOf("LaunchBootFailure", BOOT_FAILURES, "Reason why the VM could not run containers."),
    loss: failureOf("LaunchLoss", LOSSES, "Reason why the VM ended before its job."),
    failure: failureOf(
      "LaunchFailure",
      [...FINISH_CAUSES, ...FINISH_REASONS.filter((reason) => reason !== "Succeeded")],
      "Cause or reason for which the run on the VM failed.",
    ),
    message: nullable<string>("string", "Explanation of the phase."),
    conditions: conditionsField(),
  },
  { [COMPONENT]: "LaunchRecord" },
)
export type LaunchRecord = Static<typeof LaunchRecordSchema>

const DELETED = {
  deleted: Type.Integer({ description: "Number of VMs whose records are deleted." }),
  message: nullable<string>("string", "Explanation of the missing records. Null: none is missing."),
}

/** Response of GET /jobs/{id}/launches. */
export const LaunchListSchema = Type.Object({
  launches: Type.Array(LaunchRecordSchema, { description: "The job's VMs in the order of their numbers." }),
  total: Type.Integer({ description: "Number of VMs that were ever requested." }),
  ...DELETED,
})
export type LaunchList = Static<typeof LaunchListSchema>

/** Kinds of entries of a timeline. */
export const TIMELINE_TYPES = [
  "Submitted",
  "Waiting",
  "Requested",
  "Refused",
  "Unanswered",
  "Created",
  "TakeoverLost",
  "Registered",
  "BootFailed",
  "Started",
  "PreemptionNotice",
  "Finished",
  "Idle",
  "Kept",
  "HandedOver",
  "Retried",
  "Lost",
  "Deleted",
  "Ended",
] as const

const TimelineEntrySchema = Type.Object(
  {
    at: Type.String({ format: "date-time" }),
    type: StringEnum(TIMELINE_TYPES),
    reason: nullable<string>("string", "Reason, one word."),
    message: Type.String({ description: "The entry for people." }),
    launch: nullable<number>("integer", "Number of the VM. Null: the entry is about the job."),
  },
  { [COMPONENT]: "TimelineEntry" },
)
export type TimelineEntry = Static<typeof TimelineEntrySchema>

/** Response of GET /jobs/{id}/timeline. */
export const TimelineSchema = Type.Object({
  timeline: Type.Array(TimelineEntrySchema, { description: "Entries, oldest first." }),
  ...DELETED,
})
export type Timeline = Static<typeof TimelineSchema>

/** Returns the records of a job's VMs. @param launches the Launches of the job that still exist */
export function toLaunchList(job: StoredJob, launches: readonly StoredLaunch[]): LaunchList {
  const sorted = byNumber(launches)
  const missing = missingOf(job, sorted)
  return { launches: sorted.map(launchRecordOf), total: sorted.length + missing.deleted, ...missing }
}

/** Returns the name of the job of a Launch; undefined if the job is deleted. */
export type JobNameOf = (launch: string) => string | undefined

/** Returns the story of a job. @param launches the Launches of the job that still exist */
export function toTimeline(job: StoredJob, launches: readonly StoredLaunch[], jobNameOf: JobNameOf): Timeline {
  const sorted = byNumber(launches)
  const entries = [
    ...submission(job),
    ...sorted.flatMap((launch) => entriesOf(launch, jobNameOf)),
    ...forgottenRefusals(job, sorted),
    ...conditionEntries(job, sorted),
    ...retryEntries(job),
    ...end(job),
  ]
  // Most times have whole seconds. The sort is stable: entries of one second keep the order of a VM's life.
  const second = ({ at }: TimelineEntry) => Math.floor(Date.parse(at) / 1000)
  const timeline = entries.toSorted((a, b) => second(a) - second(b))
  return { timeline, ...missingOf(job, sorted) }
}

function byNumber(launches: readonly StoredLaunch[]): StoredLaunch[] {
  return launches.toSorted((a, b) => a.spec.number - b.spec.number)
}

function missingOf({ status }: StoredJob, launches: readonly StoredLaunch[]) {
  const deleted = Math.max(0, (status?.launches?.count ?? 0) - launches.length)
  if (deleted === 0) return { deleted, message: null }
  const message =
    `The records of ${deleted} of ${deleted + launches.length} VMs are deleted: Berth keeps them for about an hour after ` +
    "the job's end. What the job itself recorded is still here."
  return { deleted, message }
}

function launchRecordOf(launch: StoredLaunch): LaunchRecord {
  const { metadata, spec, status } = launch
  const { offer, connection } = spec
  return {
    name: metadata.name,
    number: spec.number,
    phase: status?.phase ?? "requested",
    provider: offer.cloud,
    region: offer.region,
    zone: offer.zone ?? null,
    instance_type: offer.instanceType,
    provisioning: offer.provisioning,
    hourly_price_usd: offer.hourlyPriceUsd,
    connection: connection === undefined ? null : fromMetadataName(connection),
    requested_at: metadata.creationTimestamp,
    ...vmFields(status),
    ...agentFields(status),
    ...reuseFields(launch),
    ...failureFields(status),
    message: status?.message ?? null,
    ...toConditionRecords(launch),
  }
}

function vmFields(status: StoredLaunch["status"]) {
  const vm = status?.vm
  return {
    vm_status: vm?.state ?? null,
    vm_instance_id: vm?.id ?? null,
    ip_address: vm?.ipAddress ?? null,
    created_at: inUtc(vm?.createTime),
    ended_at: inUtc(vm?.terminationTime),
    cost_usd: status?.costUsd ?? null,
  } satisfies Partial<LaunchRecord>
}

function agentFields(status: StoredLaunch["status"]) {
  const agent = status?.agent
  return {
    registered_at: inUtc(agent?.registrationTime),
    started_at: inUtc(agent?.startTime),
    finished_at: inUtc(agent?.finish?.time),
    exit_code: agent?.finish?.exitCode ?? agent?.lastExitCode ?? null,
  } satisfies Partial<LaunchRecord>
}

function reuseFields(launch: StoredLaunch) {
  const { spec, status } = launch
  const until = idleUntil(launch)
  return {
    idle_since: inUtc(status?.agent?.idleTime),
    idle_until: until === undefined ? null : timestamp(until),
    idle_usd: status?.idleUsd ?? null,
    warm: spec.takesOver !== undefined,
    took_over: spec.takesOver ?? null,
    handed_to: status?.handedTo ?? null,
  } satisfies Partial<LaunchRecord>
}

function failureFields(status: StoredLaunch["status"]) {
  const { refusal, loss, agent } = status ?? {}
  const { reason, cause, message, time: at } = agent?.finish ?? {}
  const hasFailed = reason !== undefined && reason !== "Succeeded"
  const bootFailure = bootFailureOf(status)
  return {
    refusal: refusal === undefined ? null : failure(refusal.class, refusal),
    boot_failure: bootFailure === undefined ? null : failure(bootFailure.reason, bootFailure),
    loss: loss === undefined ? null : failure(loss.reason, loss),
    failure: hasFailed ? failure(cause ?? reason, { message: message ?? "", time: at ?? "" }) : null,
  } satisfies Partial<LaunchRecord>
}

function failure<Reason extends string>(reason: Reason, { message, time }: { message: string; time: string }) {
  return { reason, message, at: inUtc(time) ?? time }
}

type EntryType = TimelineEntry["type"]

function entry(type: EntryType, at: string, message: string, more: Partial<TimelineEntry> = {}): TimelineEntry {
  return { at: inUtc(at) ?? at, type, reason: null, message, launch: null, ...more }
}

function submission(job: StoredJob): TimelineEntry[] {
  return [entry("Submitted", creationTimeOf(job), "The job was submitted.")]
}

function end({ status }: StoredJob): TimelineEntry[] {
  const { completionTime, reason, phase, message } = status ?? {}
  if (completionTime === undefined) return []
  const text = message === undefined || message === "" ? `The job has ${phase}.` : `The job has ${phase}: ${message}`
  return [entry("Ended", completionTime, text, { reason: reason ?? null })]
}

/** Returns the entries of one VM, in the order of its life. */
function entriesOf(launch: StoredLaunch, jobNameOf: JobNameOf): TimelineEntry[] {
  const { metadata, spec, status } = launch
  const { number, takesOver } = spec
  const vm = `VM ${number}`
  const of = (reason: string | null) => ({ launch: number, reason })
  const what = takesOver === undefined ? "was requested" : `is to be the idle VM of ${holderText(takesOver, jobNameOf)}`
  const requested = `${vm} ${what}: ${describeOffer(spec.offer)}.`
  const { refusal, unanswered, vm: machine } = status ?? {}
  return [
    entry("Requested", metadata.creationTimestamp, requested, of(null)),
    ...(unanswered === undefined
      ? []
      : [
          entry(
            "Unanswered",
            unanswered.since,
            `The cloud has not confirmed ${vm}: ${unanswered.message}`,
            of(unanswered.class),
          ),
        ]),
    ...(refusal === undefined
      ? []
      : [entry("Refused", refusal.time, `The cloud rejected ${vm}: ${refusal.message}`, of(refusal.class))]),
    ...(machine?.createTime === undefined
      ? []
      : [entry("Created", machine.createTime, createdText(launch, machine.id), of(null))]),
    ...entriesOfRun(launch),
    ...entriesOfReuse(launch),
    ...entriesOfDebug(launch),
    ...entriesOfEnd(launch, jobNameOf),
  ]
}

const idText = (id: string | undefined): string => (id === undefined ? "" : ` as ${id}`)

function createdText({ spec: { number, takesOver } }: StoredLaunch, id: string | undefined): string {
  return takesOver === undefined
    ? `VM ${number} was created${idText(id)}; billing began.`
    : `VM ${number} was taken over${idText(id)}; its billing for this job began.`
}

/** Returns the Launch that has or had a VM, by the name of its job. */
function holderText(launch: string, jobNameOf: JobNameOf): string {
  const job = jobNameOf(launch)
  return job === undefined ? `launch ${launch}` : `job ${job} (launch ${launch})`
}

/** Returns the entries of a VM that was not taken over, or that waited for another job after its own. */
function entriesOfReuse(launch: StoredLaunch): TimelineEntry[] {
  const { metadata, spec, status } = launch
  const { number, takesOver, run } = spec
  if (takesOver !== undefined && status?.phase === "terminated" && status.vm === undefined) {
    const at = findCondition(status.conditions, LaunchCondition.Ready)?.lastTransitionTime ?? metadata.creationTimestamp
    return [entry("TakeoverLost", at, `There is no VM ${number}: ${status.message}`, { launch: number })]
  }
  const since = status?.agent?.idleTime
  if (since === undefined) return []
  const verb = idleUntil(launch) === undefined ? "waited" : "waits"
  const text = `VM ${number} ${verb} for another job, for ${run.reuse?.idleSeconds} s at most.`
  return [entry("Idle", since, text, { launch: number })]
}

function entriesOfDebug(launch: StoredLaunch): TimelineEntry[] {
  const { finish } = launch.status?.agent ?? {}
  if (finish?.keptUntil === undefined) return []
  const { number } = launch.spec
  const verb = debugUntil(launch) === undefined ? "was" : "is"
  return [
    entry("Kept", finish.time, `VM ${number} ${verb} kept for sessions, until ${finish.keptUntil} at most.`, {
      launch: number,
    }),
  ]
}

function entriesOfRun({ spec: { number }, status }: StoredLaunch): TimelineEntry[] {
  const { agent } = status ?? {}
  const bootFailure = bootFailureOf(status)
  const vm = `VM ${number}`
  const of = (reason: string | null) => ({ launch: number, reason })
  const failed = bootFailure && `${vm} could not run containers: ${bootFailure.message}`
  const boot =
    bootFailure === undefined ? [] : [entry("BootFailed", bootFailure.time, failed ?? "", of(bootFailure.reason))]
  if (agent === undefined) return boot
  const { registrationTime, startTime, preemptionNotice, finish } = agent
  return [
    ...boot,
    entry("Registered", registrationTime, `The agent of ${vm} registered.`, of(null)),
    ...(startTime === undefined ? [] : [entry("Started", startTime, `The container started on ${vm}.`, of(null))]),
    ...(preemptionNotice === undefined
      ? []
      : [
          entry("PreemptionNotice", preemptionNotice, `The cloud announced that it takes ${vm} back.`, of("Preempted")),
        ]),
    ...(finish === undefined ? [] : [entry("Finished", finish.time, finishText(vm, finish), of(finish.reason))]),
  ]
}

type Finish = NonNullable<NonNullable<NonNullable<StoredLaunch["status"]>["agent"]>["finish"]>

function finishText(vm: string, { reason, exitCode, message }: Finish): string {
  const how = exitCode === undefined ? `ended (${reason})` : `ended with exit code ${exitCode}`
  const isKnown = message === undefined || message === "" || message === `exit code ${exitCode}`
  return `The run on ${vm} ${how}${isKnown ? "." : `: ${message}`}`
}

function entriesOfEnd({ spec: { number }, status }: StoredLaunch, jobNameOf: JobNameOf): TimelineEntry[] {
  const { loss, vm, handedTo } = status ?? {}
  const [type, how] =
    handedTo === undefined
      ? (["Deleted", "was deleted"] as const)
      : (["HandedOver", `was handed over to ${holderText(handedTo, jobNameOf)}`] as const)
  const text = `VM ${number} ${how}${costText(status)}.`
  return [
    ...(loss === undefined
      ? []
      : [entry("Lost", loss.time, `VM ${number} was lost: ${loss.message}`, { launch: number, reason: loss.reason })]),
    ...(vm?.terminationTime === undefined ? [] : [entry(type, vm.terminationTime, text, { launch: number })]),
  ]
}

/** Returns what a VM cost, and why no other job could have it. */
function costText({ costUsd, idleUsd, agent }: LaunchStatus = {}): string {
  const waited = idleUsd === undefined ? "" : `, of which ${usd(idleUsd)} while it waited for another job`
  const cost = costUsd === undefined ? "" : `; it cost ${usd(costUsd)}${waited}`
  return agent?.unfit === undefined ? cost : `${cost}; no other job could have it: ${agent.unfit}`
}

/** Returns the failed offers in the job's status whose Launches are deleted. */
function forgottenRefusals({ status }: StoredJob, launches: readonly StoredLaunch[]): TimelineEntry[] {
  const key = ({ cloud, region, instanceType, provisioning }: Omit<RefusedOffer, "reason" | "message" | "time">) =>
    [cloud, region, instanceType, provisioning].join("/")
  const known = new Set(launches.map(({ spec }) => key(spec.offer)))
  return (status?.refusedOffers ?? [])
    .filter((offer) => !known.has(key(offer)))
    .map(({ cloud, region, instanceType, reason, message, time: at }) =>
      entry("Refused", at, `${cloud} ${instanceType} in ${region}: ${message}`, { reason }),
    )
}

/** Returns the latest failures after which the job got another VM. */
function retryEntries({ status }: StoredJob): TimelineEntry[] {
  return (status?.retries ?? []).map(({ launch, reason, exitCode, memoryGib, time: at }) => {
    const code = exitCode === undefined ? "" : `, exit code ${exitCode}`
    const memory =
      memoryGib === undefined ? "" : ` whose container has at least ${Number(memoryGib.toPrecision(4))} GiB`
    const message = `The run on VM ${launch} failed (${reason}${code}), and the job gets another VM${memory}.`
    return entry("Retried", at, message, { launch, reason })
  })
}

/** Returns what only the job's conditions still have: why it waits, and the first VM's times if its record is deleted. */
function conditionEntries({ status }: StoredJob, launches: readonly StoredLaunch[]): TimelineEntry[] {
  const placed = findCondition(status?.conditions, JobCondition.Placed)
  const waiting =
    placed?.status === "False" && status?.completionTime === undefined
      ? [entry("Waiting", placed.lastTransitionTime, placed.message, { reason: placed.reason })]
      : []
  if (launches.length > 0) return waiting
  const types = [
    [JobCondition.Placed, "Requested", status?.placement?.reason ?? "A VM was requested."],
    [JobCondition.VMReady, "Registered", "The agent of the VM registered."],
    [JobCondition.Started, "Started", "The container started."],
  ] as const
  return [
    ...waiting,
    ...types.flatMap(([type, shown, message]) => {
      const found = findCondition(status?.conditions, type)
      return found?.status === "True" ? [entry(shown, found.lastTransitionTime, message, { reason: found.reason })] : []
    }),
  ]
}
