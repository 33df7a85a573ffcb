import { type CapLevel, type SpendCaps, type SpendingStatus, WITHIN_CAPS } from "../../core/apis/caps.ts"
import type { Clock } from "../../core/apis/clock.ts"
import { findCondition } from "../../core/apis/conditions.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { StoredOrganization } from "../../core/apis/organization.ts"
import type { StoredProject } from "../../core/apis/project.ts"
import type { StoredStatement } from "../../core/apis/statement.ts"
import { installationCaps, organizationCaps, projectCaps } from "../../core/identity/projects.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { CONFIG_MAPS, type ConfigMap } from "../../core/kube/core.ts"
import { ifFound, isConflict, isNotFound } from "../../core/kube/errors.ts"
import type { EventNote, EventRecorder } from "../../core/kube/events.ts"
import type { ApiObject, Resource } from "../../core/kube/resource.ts"
import type { Store } from "../../core/kube/store.ts"
import { ORGANIZATIONS, PROJECTS } from "../../core/resources.ts"
import type { MonthAmounts } from "../../core/telemetry/caps.ts"
import { type LevelCaps, reservedUsd, type Spending, spentUsd, sumSpending } from "../../market/placement/caps.ts"
import { recordedSpending } from "../../market/placement/market.ts"
import { JOB_DEFAULTS } from "../../market/placement/settings.ts"
import type { Fence } from "../fence.ts"
import { handlesOrganization, handlesProject } from "../project/handled.ts"
import { inRounds } from "../rounds.ts"
import { type CapsDecision, decide, withCondition } from "./decide.ts"

/** ConfigMap with the spending under the installation's cap, in the system namespace. */
export const SPENDING_CONFIG_MAP = "berth-spending"

export const FIELD_MANAGER = "berth-cap-watcher"

export interface CapWatcherOptions {
  client: Pick<KubeClient, "get" | "patchStatus" | "apply">
  projects: { store: Store<StoredProject> }
  organizations: { store: Store<StoredOrganization> }
  /** With the indexes of the launch controller. */
  launches: { store: Store<StoredLaunch> }
  statements: { store: Store<StoredStatement> }
  jobs: { store: Store<StoredJob> }
  /** Caps of the installation. */
  installation: SpendCaps | undefined
  systemNamespace: string
  /** Only namespace whose project this operator handles; absent: all. */
  watchNamespace?: string | undefined
  recorder: Pick<EventRecorder, "record">
  /** Called for each threshold, after its event. */
  onThreshold?: (reached: ReachedThreshold) => void
  fence: Fence
  clock: Clock
  logger: Logger
  /** Delay between two rounds, seconds. Default 30. */
  intervalSeconds?: number
}

/** Threshold of a month's cap that the spending has reached. */
export interface ReachedThreshold {
  level: LevelCaps
  /** Id of the Project or Organization, or `installation`. */
  uid: string
  spending: SpendingStatus
  note: EventNote
}

type CapHolder = StoredProject | StoredOrganization

type Ratios = Map<CapLevel, number>

/**
 * Writes the spending under caps into Projects, Organizations and a ConfigMap, and emits an event at each threshold. It
 * only reports: placements and cancellations calculate the spending themselves.
 */
export class CapWatcher {
  readonly #options: CapWatcherOptions
  #amounts: MonthAmounts | undefined

  constructor(options: CapWatcherOptions) {
    this.#options = options
  }

  /** Returns the amounts of the latest round; undefined while another process leads. */
  amounts(): MonthAmounts | undefined {
    return this.#amounts
  }

  /** Runs rounds until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger, intervalSeconds = 30 } = this.#options
    const failure = "the spending under caps could not be written"
    await inRounds(() => this.round(), { clock, logger, intervalSeconds, failure }, signal).finally(() => {
      this.#amounts = undefined
    })
  }

  async round(): Promise<void> {
    const { projects, organizations, installation } = this.#options
    const ratios: Ratios = new Map()
    for (const project of projects.store.list()) {
      if (!handlesProject(project, this.#options)) continue
      await this.#checkObject(PROJECTS as Resource<CapHolder>, project, projectCaps(project), ratios)
    }
    for (const organization of organizations.store.list()) {
      if (!handlesOrganization(organization, this.#options)) continue
      const caps = organizationCaps(organization, { projects: projects.store })
      await this.#checkObject(ORGANIZATIONS as Resource<CapHolder>, organization, caps, ratios)
    }
    const level = installationCaps(installation)
    if (level?.caps.maxMonthlyUsd !== undefined) await this.#checkInstallation(level, ratios)
    const caps = { maxMonthlyUsd: Number.POSITIVE_INFINITY }
    const spending = this.#spendingOf({ level: "installation", caps, owns: () => true })
    this.#amounts = {
      spentUsd: spentUsd(spending),
      reservedUsd: reservedUsd({ caps, spending }),
      spentRatios: ratios,
    }
  }

  async #checkObject(
    resource: Resource<CapHolder>,
    object: CapHolder,
    level: LevelCaps | undefined,
    ratios: Ratios,
  ): Promise<void> {
    const { status, metadata } = object
    if (metadata.deletionTimestamp !== undefined) return
    if (level?.caps.maxMonthlyUsd === undefined) {
      if (status?.spending === undefined) return
      const conditions = status.conditions?.filter(({ type }) => type !== WITHIN_CAPS) ?? []
      return this.#write(resource, object, { spending: null, conditions })
    }
    const decision = this.#decide(level, status?.spending, ratios)
    const isShown = findCondition(status?.conditions, WITHIN_CAPS) !== undefined
    const { status: spending = isShown ? undefined : status?.spending, events } = decision
    if (spending === undefined) return
    const isNew = spending.reachedPercent !== status?.spending?.reachedPercent || !isShown
    const { clock } = this.#options
    const about = { level: level.level, status: spending, caps: level.caps }
    const conditions = isNew && withCondition(status?.conditions, about, metadata.generation, clock.now())
    await this.#write(resource, object, { spending, ...(conditions && { conditions }) })
    this.#report(object, events, { level, uid: metadata.uid, spending })
  }

  #report(object: ApiObject, notes: readonly EventNote[], reached: Omit<ReachedThreshold, "note">): void {
    const { recorder, onThreshold } = this.#options
    for (const note of notes) {
      recorder.record(object, note)
      onThreshold?.({ ...reached, note })
    }
  }

  async #write(
    resource: Resource<CapHolder>,
    { metadata: { name, resourceVersion } }: CapHolder,
    status: object,
  ): Promise<void> {
    const { client, fence } = this.#options
    fence()
    try {
      await client.patchStatus(
        resource,
        { name },
        { merge: { metadata: { resourceVersion }, status } },
        { fieldManager: FIELD_MANAGER },
      )
    } catch (error) {
      // Changed or deleted meanwhile: the next round decides again.
      if (!isConflict(error) && !isNotFound(error)) throw error
    }
  }

  async #checkInstallation(level: LevelCaps, ratios: Ratios): Promise<void> {
    const { client, systemNamespace: namespace, fence } = this.#options
    const metadata = { namespace, name: SPENDING_CONFIG_MAP }
    const before = spendingIn(await ifFound(client.get(CONFIG_MAPS, metadata)))
    const { status, events } = this.#decide(level, before, ratios)
    if (status === undefined) return
    const data = Object.fromEntries(Object.entries(status).map(([name, value]) => [name, String(value)]))
    fence()
    await client.apply(CONFIG_MAPS, { metadata, data }, { fieldManager: FIELD_MANAGER, force: true })
    const object = { apiVersion: "v1", kind: "ConfigMap", metadata }
    this.#report(object, events, { level, uid: "installation", spending: status })
  }

  #decide(level: LevelCaps, before: SpendingStatus | undefined, ratios: Ratios): CapsDecision {
    const spending = this.#spendingOf(level)
    const { maxMonthlyUsd = 0 } = level.caps
    const ratio = maxMonthlyUsd === 0 ? 1 : spentUsd(spending) / maxMonthlyUsd
    ratios.set(level.level, Math.max(ratio, ratios.get(level.level) ?? 0))
    return decide({ level: level.level, caps: level.caps, spending, before }, this.#options.clock.now())
  }

  #spendingOf(level: LevelCaps): Spending {
    const { launches, clock } = this.#options
    const own = launches.store.list().filter(({ spec }) => level.owns(spec.job.namespace, spec.organization))
    return sumSpending(own, clock.now(), JOB_DEFAULTS.expectedSeconds, recordedSpending(level, this.#options))
  }
}

/** Returns the spending that was written into the ConfigMap; undefined without one. */
function spendingIn(configMap: ConfigMap | undefined): SpendingStatus | undefined {
  const { month, ...amounts } = configMap?.data ?? {}
  if (month === undefined) return undefined
  const numberOf = (name: string) => Number(amounts[name] ?? 0)
  return {
    month,
    spentUsd: numberOf("spentUsd"),
    reservedUsd: numberOf("reservedUsd"),
    maxMonthlyUsd: numberOf("maxMonthlyUsd"),
    reachedPercent: numberOf("reachedPercent"),
  }
}
