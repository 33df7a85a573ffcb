import { type Clock, timestamp } from "../../../core/apis/clock.ts"
import { quote } from "../../../core/apis/field-error.ts"
import { jobUidOf, type StoredLaunch } from "../../../core/apis/launch.ts"
import { GATEWAY_FIELD_MANAGER, keyOf } from "../../../core/apis/meta.ts"
import type { KubeClient } from "../../../core/kube/client.ts"
import { ifFound, isConflict, isNotFound } from "../../../core/kube/errors.ts"
import type { Store } from "../../../core/kube/store.ts"
import { LAUNCHES } from "../../../core/resources.ts"
import { idleUntil } from "../../../core/reuse/reuse.ts"
import { waitWithTimeout } from "../../caches.ts"
import type { Changes } from "../../changes.ts"
import { notFound, Problem } from "../../http/problem.ts"
import type { JobNameOf } from "../jobs/launches.ts"
import { type IdleVm, toIdleVm } from "./schema.ts"

/** Reason in the Launch why no other job may have a VM that a user has ended. */
const ENDED = "a user ended it while it waited for another job"

/** Longest time that the answer waits for the cache to show the end, milliseconds. */
const CACHE_WAIT_MS = 3000

export interface IdleOptions {
  /** With the façade's own rights, which in a Launch are those to write `status.agent`. */
  client: Pick<KubeClient, "get" | "patchStatus">
  /** Cached, with the index `unmarked`. */
  launches: Store<StoredLaunch>
  jobNameOf: JobNameOf
  changes: Changes
  clock: Clock
  /** Namespace of the project's jobs. */
  namespace: string
}

/** VMs of a project that wait for another job. */
export class IdleVms {
  readonly #options: IdleOptions

  constructor(options: IdleOptions) {
    this.#options = options
  }

  /** Returns all of them, the one that waits longest first. */
  list(): IdleVm[] {
    const now = this.#options.clock.now()
    return this.#all()
      .flatMap((launch) => {
        const until = idleUntil(launch)
        const since = launch.status?.agent?.idleTime
        return until === undefined || since === undefined
          ? []
          : [toIdleVm(launch, { since, until: timestamp(until) }, now)]
      })
      .toSorted((a, b) => a.idle_since.localeCompare(b.idle_since) || a.launch.localeCompare(b.launch))
  }

  /**
   * Ends a VM: no job can take it over any more, and the operator deletes it. Only the version that was read is written,
   * so a job that takes the VM at the same moment either gets it or never does.
   * @throws Problem 404 if there is no such idle VM, 409 if a job has taken it
   */
  async end(name: string): Promise<void> {
    const { changes, client, launches } = this.#options
    const cached = this.#all().find(({ metadata }) => metadata.name === name)
    if (cached === undefined) throw noIdleVm(name)
    const { metadata } = await changes.run({ noun: "VM", key: keyOf(cached) }, async () => {
      const launch = await ifFound(client.get(LAUNCHES, cached.metadata))
      if (launch?.status?.handedTo !== undefined) throw this.#taken(launch.status.handedTo)
      const agent = launch?.status?.agent
      if (launch === undefined || agent === undefined || idleUntil(launch) === undefined) throw noIdleVm(name)
      const { resourceVersion } = launch.metadata
      const merge = { metadata: { resourceVersion }, status: { agent: { ...agent, unfit: ENDED } } }
      try {
        return await client.patchStatus(LAUNCHES, launch.metadata, { merge }, { fieldManager: GATEWAY_FIELD_MANAGER })
      } catch (error) {
        if (isConflict(error) || isNotFound(error)) return undefined
        throw error
      }
    })
    await waitWithTimeout(CACHE_WAIT_MS, (signal) => launches.waitFor(metadata.resourceVersion, signal))
  }

  /** Returns the project's Launches, also such without a VM. */
  #all(): StoredLaunch[] {
    const { launches, namespace } = this.#options
    return launches.byIndex("unmarked", namespace)
  }

  #taken(by: string): Problem {
    const job = this.#options.jobNameOf(by) ?? jobUidOf(by)
    const detail = `The job ${job} has taken this VM a moment ago, so nothing was ended. Cancel that job to end the VM.`
    return new Problem({ type: "vm-taken", status: 409, detail })
  }
}

function noIdleVm(name: string): Problem {
  return notFound(`The project has no idle VM of a launch ${quote(name)}. It may have ended.`)
}
