import { Counter, Gauge, Histogram, type Registry } from "prom-client"
import { JOB_PHASES, type JobPhase, type StoredJob } from "../apis/job.ts"
import {
  BOOT_FAILURES,
  bootFailureOf,
  FINISH_REASONS,
  isOver,
  LOSSES,
  pricesOf,
  type StoredLaunch,
} from "../apis/launch.ts"
import { sumOfParts } from "../apis/price.ts"
import { REFUSALS } from "../apis/refusals.ts"
import { RETRY_REASONS } from "../apis/retry-rules.ts"
import type { Reflector } from "../kube/reflector.ts"
import type { Change } from "../kube/store.ts"
import { idlenessOf } from "../reuse/reuse.ts"

export interface MeasuredObjects {
  /** Cache of the unsettled jobs. */
  jobs: Pick<Reflector<StoredJob>, "store" | "onChange">
  /** Settled jobs, which are counted by sweeps. */
  settled: { phases(): ReadonlyMap<JobPhase, number> }
  launches: Pick<Reflector<StoredLaunch>, "store" | "onChange">
  /** Returns true in the leader. Only the leader reports, so that sums over replicas are right. */
  isLeading: () => boolean
}

/** Adds the metrics of jobs, VMs and their cost. No label has names that users choose. */
export function measureJobs(registry: Registry, { jobs, settled, launches, isLeading }: MeasuredObjects): void {
  new Gauge({
    name: "berth_jobs",
    help: "Jobs by phase.",
    labelNames: ["phase"],
    registers: [registry],
    collect() {
      this.reset()
      if (!isLeading()) return
      for (const phase of JOB_PHASES) this.set({ phase }, settled.phases().get(phase) ?? 0)
      for (const { status } of jobs.store.list()) this.inc({ phase: status?.phase ?? "queued" })
    },
  })
  const live = () => (isLeading() ? launches.store.list().filter((launch) => !isOver(launch)) : [])
  perMarket(registry, "berth_vms", "VMs that were requested and are not known to be deleted.", {
    live,
    amountOf: () => 1,
  })
  perMarket(registry, "berth_idle_vms", "VMs among these that wait for another job.", {
    live,
    amountOf: (launch) => (idlenessOf(launch).is === "idle" ? 1 : 0),
  })
  perMarket(registry, "berth_spend_usd_per_hour", "Hourly price of these VMs by the catalogue, US dollars.", {
    live,
    amountOf: (launch) => sumOfParts(pricesOf(launch)),
  })
  measureLaunches(registry, launches, isLeading)
  measureTakeovers(registry, launches, isLeading)
  measureUse(registry, launches, isLeading)
  measureRetries(registry, jobs, isLeading)
}

/** Counts new VMs after failed runs as they happen. */
function measureRetries(registry: Registry, jobs: MeasuredObjects["jobs"], isLeading: () => boolean): void {
  const retries = new Counter({
    name: "berth_new_vm_retries_total",
    help: "Failed runs after which a job got another VM, by the reason or cause of the failure.",
    labelNames: ["reason"],
    registers: [registry],
  })
  for (const reason of RETRY_REASONS) retries.inc({ reason }, 0)
  jobs.onChange(({ old, current }) => {
    if (old === undefined || current === undefined || !isLeading()) return
    const known = old.status?.retries?.at(-1)?.launch ?? 0
    for (const { launch, reason } of current.status?.retries ?? []) if (launch > known) retries.inc({ reason })
  })
}

interface Summands {
  live: () => StoredLaunch[]
  amountOf: (launch: StoredLaunch) => number
}

function perMarket(registry: Registry, name: string, help: string, { live, amountOf }: Summands): void {
  new Gauge({
    name,
    help,
    labelNames: ["cloud", "provisioning"],
    registers: [registry],
    collect() {
      this.reset()
      for (const launch of live()) {
        const { cloud, provisioning } = launch.spec.offer
        this.inc({ cloud, provisioning }, amountOf(launch))
      }
    },
  })
}

/** Counts the outcomes of Launches as they happen. */
function measureLaunches(registry: Registry, launches: MeasuredObjects["launches"], isLeading: () => boolean): void {
  const outcomes = new Counter({
    name: "berth_launches_total",
    help: "Outcomes of launches: refused, bootFailed, registered, finished, lost, terminated; with the reason, if there is one.",
    labelNames: ["cloud", "outcome", "reason"],
    registers: [registry],
  })
  const boots = new Histogram({
    name: "berth_vm_boot_seconds",
    help: "Time from the decision for a VM until its agent registered.",
    labelNames: ["cloud"],
    buckets: [5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900],
    registers: [registry],
  })
  const clouds = new Set<string>()
  launches.onChange((change) => {
    const { cloud } = (change.current ?? change.old)?.spec.offer ?? {}
    if (cloud === undefined) return
    // `rate` ignores the first value of a series that begins above 0.
    if (!clouds.has(cloud)) for (const outcome of ALL_OUTCOMES) outcomes.inc({ cloud, ...outcome }, 0)
    clouds.add(cloud)
    if (!isLeading()) return
    for (const { outcome, reason } of newOutcomes(change)) outcomes.inc({ cloud, outcome, reason })
    const seconds = bootSeconds(change)
    if (seconds !== undefined) boots.observe({ cloud }, seconds)
  })
}

/** Counts jobs that got an idle VM, and those that found that it had ended or had another job. */
function measureTakeovers(registry: Registry, launches: MeasuredObjects["launches"], isLeading: () => boolean): void {
  const takeovers = new Counter({
    name: "berth_takeovers_total",
    help: "Launches that were to take over an idle VM: taken, or lost to another launch or to the VM's end.",
    labelNames: ["outcome"],
    registers: [registry],
  })
  for (const outcome of ["taken", "lost"]) takeovers.inc({ outcome }, 0)
  launches.onChange(({ old, current }) => {
    if (old === undefined || current === undefined || !isLeading()) return
    if (old.status?.handedTo === undefined && current.status?.handedTo !== undefined)
      takeovers.inc({ outcome: "taken" })
    if (!isLostTakeover(old) && isLostTakeover(current)) takeovers.inc({ outcome: "lost" })
  })
}

/** Returns true if a Launch did not get the VM that it was to take over. One that Berth ended before has not tried. */
function isLostTakeover({ spec, status }: StoredLaunch): boolean {
  const hasNoVm = status?.phase === "terminated" && status.vm === undefined
  return spec.takesOver !== undefined && spec.ended !== true && hasNoVm
}

/** Measures what runs used of their machines, when they end. */
function measureUse(registry: Registry, launches: MeasuredObjects["launches"], isLeading: () => boolean): void {
  const buckets = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]
  const registers = [registry]
  const help = "of a run that has ended, as a part of the machine's."
  const cpu = new Histogram({ name: "berth_run_cpu_used_ratio", help: `Mean vCPUs in use ${help}`, buckets, registers })
  const memory = new Histogram({
    name: "berth_run_memory_used_ratio",
    help: `Largest memory in use ${help}`,
    buckets,
    registers,
  })
  launches.onChange(({ old, current }) => {
    const usage = current?.status?.agent?.finish?.usage
    if (old === undefined || old.status?.agent?.finish !== undefined || usage === undefined || !isLeading()) return
    const { offer } = old.spec
    cpu.observe(usage.cpuMean / offer.cpu)
    memory.observe(usage.memoryPeakMib / 1024 / offer.memoryGib)
  })
}

interface Outcome {
  outcome: "refused" | "bootFailed" | "registered" | "finished" | "lost" | "terminated"
  reason: string
}

/** Losses without planned power-offs. */
const COUNTED_LOSSES = LOSSES.filter((reason) => reason !== "PoweredOff")

/** All possible outcomes of a Launch. */
const ALL_OUTCOMES: readonly Outcome[] = [
  ...REFUSALS.map((reason) => ({ outcome: "refused", reason }) as const),
  ...BOOT_FAILURES.map((reason) => ({ outcome: "bootFailed", reason }) as const),
  { outcome: "registered", reason: "" },
  ...FINISH_REASONS.map((reason) => ({ outcome: "finished", reason }) as const),
  ...COUNTED_LOSSES.map((reason) => ({ outcome: "lost", reason }) as const),
  { outcome: "terminated", reason: "" },
]

/** Returns the outcomes of a Launch that are new with this change. A Launch without an old version has none. */
function newOutcomes({ old, current }: Change<StoredLaunch>): Outcome[] {
  if (old === undefined || current === undefined) return []
  const known = new Set(outcomesOf(old).map(({ outcome }) => outcome))
  return outcomesOf(current).filter(({ outcome }) => !known.has(outcome))
}

function outcomesOf({ status }: StoredLaunch): Outcome[] {
  const { refusal, agent, loss, phase } = status ?? {}
  const bootFailure = bootFailureOf(status)
  const outcomes: (Outcome | undefined)[] = [
    refusal && { outcome: "refused", reason: refusal.class },
    bootFailure && { outcome: "bootFailed", reason: bootFailure.reason },
    agent && { outcome: "registered", reason: "" },
    agent?.finish && { outcome: "finished", reason: agent.finish.reason },
    loss && loss.reason !== "PoweredOff" ? { outcome: "lost", reason: loss.reason } : undefined,
    phase === "terminated" ? { outcome: "terminated", reason: "" } : undefined,
  ]
  return outcomes.filter((outcome) => outcome !== undefined)
}

function bootSeconds({ old, current }: Change<StoredLaunch>): number | undefined {
  const registrationTime = current?.status?.agent?.registrationTime
  if (old === undefined || current === undefined || registrationTime === undefined) return undefined
  if (old.status?.agent !== undefined) return undefined
  return Math.max(0, (Date.parse(registrationTime) - Date.parse(current.metadata.creationTimestamp)) / 1000)
}
