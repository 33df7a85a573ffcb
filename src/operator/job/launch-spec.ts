import { isDeepStrictEqual } from "node:util"
import { bootDeadlineOf } from "../../clouds/machines/machines.ts"
import { cutTo } from "../../core/apis/conditions.ts"
import { CRON_JOB_ANNOTATIONS } from "../../core/apis/cronjob.ts"
import { defined } from "../../core/apis/defined.ts"
import { LIMITS } from "../../core/apis/field-limits.ts"
import { type JobSpec, RunSchema, type StoredJob, type Volume } from "../../core/apis/job.ts"
import { LAUNCH_FINALIZER, type Launch, launchName, type StoredLaunch } from "../../core/apis/launch.ts"
import { OWN_CLOUD } from "../../core/apis/machine.ts"
import { ANNOTATIONS, API_VERSION, LABELS } from "../../core/apis/meta.ts"
import type { Offer } from "../../core/apis/offer.ts"
import { costOf, type HourlyPrices, sumOfParts } from "../../core/apis/price.ts"
import { parseGib } from "../../core/apis/quantity.ts"
import { rulesOf } from "../../core/apis/retry-rules.ts"
import type { Reuse } from "../../core/apis/reuse.ts"
import { MACHINE_START_SECONDS } from "../../core/machines/machine.ts"
import { reuseOf, TAKEOVER_SECONDS, vmLifetimeOf, vmNameOf, WARM_VM_SECONDS } from "../../core/reuse/reuse.ts"
import { type Deadlines, longestBilledSeconds, vmLifetime, withinBudget } from "../../market/placement/budget.ts"
import type { Takeover } from "../../market/placement/idle.ts"
import { debugOf, type JobSettings } from "../../market/placement/settings.ts"
import type { LaunchAccount } from "../../market/router/cooldown.ts"
import type { RankedPlacement } from "../../market/router/route.ts"
import type { InstallationFacts } from "./dependencies.ts"
import type { JobFacts } from "./facts.ts"

/** Choice of a decision for a Launch. */
export interface LaunchChoice {
  placement: RankedPlacement<LaunchAccount> | Takeover
  /** Explanation of the placement. */
  why: string
  /** True if the job's own limit, or a strict cap, holds in any case. */
  isStrict: boolean
  /** True if its VM may wait for another job. */
  mayBeKept: boolean
  /** The job's volumes, each with the connection that gives access to its bucket. Absent: unchanged from the job. */
  volumes: JobSpec["volumes"] | undefined
}

/** Returns the Launch of a job, with everything that its VM needs except the credentials. Pure. */
export function launchObject(facts: JobFacts, choice: LaunchChoice): Launch {
  const { job, nextNumber: number } = facts
  const { installation, organization } = facts.observed
  const { placement, why } = choice
  const { namespace = "", name, uid } = job.metadata
  const { connection, account } = placement.launchAccount
  const submission = job.metadata.annotations?.[ANNOTATIONS.submission]
  const holder = holderIn(placement)
  const deadlines = deadlinesOf(facts, choice)
  return {
    apiVersion: API_VERSION,
    kind: "Launch",
    metadata: {
      name: launchName(uid, number),
      namespace: installation.systemNamespace,
      labels: {
        [LABELS.jobUid]: uid,
        [LABELS.jobNamespace]: namespace,
        ...(holder && { [LABELS.rootLaunch]: vmNameOf(holder) }),
      },
      // The next status of the Job shows it. After a crash the Launch is the only source.
      annotations: {
        [ANNOTATIONS.placementReason]: cutTo(why, LIMITS.message),
        ...(submission !== undefined && { [ANNOTATIONS.submission]: submission }),
      },
      finalizers: [LAUNCH_FINALIZER],
    },
    spec: {
      job: { namespace, name, uid },
      number,
      installation: installation.id,
      offer: placement.offer,
      hourlyPrices: placement.prices,
      ...defined({ ceilingUsd: placement.ceilingUsd, organization, connection, account }),
      reservedUsd: reservationOf(facts, choice, deadlines.lifetimeSeconds),
      ...groupsOf(job),
      ...(holder === undefined ? chooseDisk(job) : ofHolder(holder)),
      run: runFor(facts, choice),
      ...ofInstallation(installation, job),
      ...deadlines,
    },
  }
}

/** Returns the reuse of a job's VM; undefined: it is not kept for others. */
function keptBy({ job, settings }: JobFacts, { mayBeKept }: LaunchChoice): Reuse | undefined {
  return mayBeKept ? reuseOf(job, settings) : undefined
}

function holderIn(placement: LaunchChoice["placement"]): StoredLaunch | undefined {
  return "holder" in placement ? placement.holder : undefined
}

/** Returns the deadlines of a job's VM. One that it takes over has its own timer already. */
function deadlinesOf(facts: JobFacts, choice: LaunchChoice): Deadlines & Pick<Launch["spec"], "vmLifetimeSeconds"> {
  const { job, budget, settings, left } = facts
  const { placement } = choice
  const { startDeadlineSeconds } = settings
  const isTakeover = holderIn(placement) !== undefined
  const longest = {
    bootDeadlineSeconds: isTakeover ? TAKEOVER_SECONDS : bootSeconds(placement.offer, settings),
    startDeadlineSeconds,
    lifetimeSeconds: vmLifetime(job, left.timeout, settings),
  }
  const deadlines = budget === undefined ? longest : withinBudget(longest, budget, highestPricesIn(placement))
  if (isTakeover || keptBy(facts, choice) === undefined) return deadlines
  return { ...deadlines, vmLifetimeSeconds: deadlines.lifetimeSeconds + WARM_VM_SECONDS }
}

/** Returns the time in which a new VM has to register, seconds. An own machine is on already. */
function bootSeconds(offer: Offer, { bootDeadlineSeconds }: Pick<JobSettings, "bootDeadlineSeconds">): number {
  if (offer.cloud === OWN_CLOUD) return MACHINE_START_SECONDS
  return bootDeadlineOf(offer)?.seconds ?? bootDeadlineSeconds
}

/** Returns the names by which a Launch's cost and its VM count together with others. */
function groupsOf({ metadata, spec }: StoredJob): Partial<Launch["spec"]> {
  const cronJob = metadata.labels?.[LABELS.cronJobUid]
  const cronJobName = metadata.annotations?.[CRON_JOB_ANNOTATIONS.name]?.slice(0, LIMITS.cronJobName)
  return defined({ labels: spec.labels, concurrencyGroup: spec.concurrencyGroup?.name, cronJob, cronJobName })
}

/** Returns what a VM has of the installation. */
function ofInstallation(installation: InstallationFacts, { spec }: StoredJob) {
  const { gatewayUrl, gatewayCa, vmProxy: proxy, agentImage, volumesImage } = installation
  return {
    gatewayUrl,
    ...defined({ gatewayCa, proxy, agentImage }),
    ...(spec.volumes !== undefined && defined({ volumesImage })),
  }
}

/** Returns what a Launch has of the one whose VM it takes over, because it is about that VM. */
function ofHolder(holder: StoredLaunch): Partial<Launch["spec"]> {
  const { network, disk, imageId } = holder.spec
  return {
    takesOver: holder.metadata.name,
    root: vmNameOf(holder),
    vmLifetimeSeconds: vmLifetimeOf(holder.spec),
    ...defined({ network, disk, imageId }),
  }
}

/** Returns true if a VM runs the programs, and has the ways out, that this installation gives to its VMs now. */
export function isUpToDate({ spec }: StoredLaunch, installation: InstallationFacts): boolean {
  const { gatewayUrl, gatewayCa, vmProxy, agentImage } = installation
  const [own, current] = [
    [spec.gatewayUrl, spec.gatewayCa, spec.proxy, spec.agentImage],
    [gatewayUrl, gatewayCa, vmProxy, agentImage],
  ]
  return isDeepStrictEqual(own, current)
}

function highestPricesIn({ prices, ceilingUsd }: LaunchChoice["placement"]): HourlyPrices {
  return { ...prices, machineUsd: ceilingUsd ?? prices.machineUsd }
}

/**
 * Returns the amount that a VM takes from caps, USD. Under a strict limit it is the most until the VM's deadline. Otherwise
 * it is the cost of the timeout, or of the expected time. Users can write the annotation with an expected time, so it never
 * lowers the amount.
 */
function reservationOf(facts: JobFacts, choice: LaunchChoice, lifetimeSeconds: number): number {
  const { job, left, expectedSeconds, settings } = facts
  const { placement, isStrict } = choice
  const { minimumBilledSeconds } = placement.offer
  // A VM waits for another job, or is kept for sessions.
  const { idleSeconds = 0 } = keptBy(facts, choice) ?? {}
  const afterSeconds = Math.max(idleSeconds, debugOf(job.spec, settings)?.keepSeconds ?? 0)
  const usdFor = (prices: HourlyPrices, seconds: number) =>
    sumOfParts(costOf(prices, { seconds, minimumBilledSeconds }))
  const most = usdFor(highestPricesIn(placement), longestBilledSeconds(lifetimeSeconds))
  if (isStrict) return most
  const expected = Math.max(settings.expectedSeconds, expectedSeconds)
  const seconds = job.spec.timeoutSeconds === undefined ? expected : left.timeout
  return Math.min(most, usdFor(placement.prices, seconds + afterSeconds))
}

/** Returns the container's part of a job's spec. */
function buildRun({ spec }: StoredJob): Launch["spec"]["run"] {
  const given = Object.keys(RunSchema.properties).filter((field) => field in spec)
  return Object.fromEntries(given.map((field) => [field, spec[field as keyof typeof spec]])) as Launch["spec"]["run"]
}

/** Returns the container of one VM: that of the job, with its volumes and Berth's own variables. */
function runFor(facts: JobFacts, choice: LaunchChoice): Launch["spec"]["run"] {
  const { job, losses, left, nextNumber, settings } = facts
  const { reuse: _, debug: __, ...asked } = buildRun(job)
  const run = { ...asked, ...defined({ reuse: keptBy(facts, choice), debug: debugOf(job.spec, settings) }) }
  const volumes = choice.volumes ?? run.volumes
  const [checkpoints] = Object.entries(volumes ?? {})
    .filter(([, { checkpoint }]) => checkpoint === true)
    .sort(([a], [b]) => (a < b ? -1 : 1))
  const retryRules = [...rulesOf(job.spec)]
  const idleLimit =
    run.idleLimit ?? (settings.idleSeconds === undefined ? undefined : { seconds: settings.idleSeconds })
  const own = {
    BERTH_LAUNCH: String(nextNumber),
    BERTH_PREEMPTIONS: String(losses.preempted),
    ...(checkpoints !== undefined && { BERTH_CHECKPOINT_DIR: checkpoints[1].mountPath }),
  }
  const secret = new Set(Object.keys(run.secretEnv ?? {}))
  return {
    ...run,
    ...(retryRules.length > 0 && { retryRules }),
    ...(idleLimit !== undefined && { idleLimit }),
    timeoutSeconds: left.timeout,
    // The job's own variables take precedence.
    env: { ...Object.fromEntries(Object.entries(own).filter(([name]) => !secret.has(name))), ...run.env },
    ...(volumes !== undefined && {
      volumes: Object.fromEntries(
        Object.entries(volumes).map(([name, volume]) => [name, inOwnFolder(name, volume, job.metadata.uid)]),
      ),
    }),
  }
}

/** Returns the volume; one for checkpoints with a folder of its own for the job, which is the same on all its VMs. */
function inOwnFolder(name: string, volume: Volume, uid: string): Volume {
  if (volume.checkpoint !== true) return volume
  const parent = (volume.prefix ?? "").replace(/^\/+|\/+$/g, "")
  return { ...volume, prefix: [...(parent === "" ? [] : [parent]), uid, name].join("/") }
}

/** Returns the disk that a job requires. */
function chooseDisk({ spec }: StoredJob): Pick<Launch["spec"], "disk"> {
  const size = spec.resources?.disk
  return size === undefined ? {} : { disk: { requiredGib: parseGib(size) } }
}
