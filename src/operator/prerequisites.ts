import { isDeepStrictEqual } from "node:util"
import type { StoredJob } from "../core/apis/job.ts"
import type { StoredJobArray } from "../core/apis/jobarray.ts"
import { keyOf } from "../core/apis/meta.ts"
import { type Prerequisite, type PrerequisiteName, prerequisiteText } from "../core/apis/prerequisites.ts"
import type { KubeClient } from "../core/kube/client.ts"
import { ifFound } from "../core/kube/errors.ts"
import type { Reflector } from "../core/kube/reflector.ts"
import type { Change, IndexFunction, Store } from "../core/kube/store.ts"
import {
  findCircle,
  type Obstacle,
  obstacleOf,
  type PrerequisiteState,
  prerequisiteState,
  recordOf,
} from "../core/order/prerequisites.ts"
import { JOB_ARRAYS, JOBS } from "../core/resources.ts"
import { type Source, watchSource } from "../core/runtime/controller.ts"

/** The jobs and arrays that others wait for. Jobs and arrays wait in the same way. */

/** Index of Jobs and JobArrays by the names in their `after`. */
const PREREQUISITE_INDEX = "prerequisite"

/** Indexes that the caches of Jobs and of JobArrays must have. */
export const dependentIndexes: Record<string, IndexFunction<StoredJob | StoredJobArray>> = {
  [PREREQUISITE_INDEX]: ({ metadata, spec }) => spec.after?.map((name) => indexValue(metadata.namespace, name)) ?? [],
}

/** The slash is safe: no name of a namespace or a job has one. */
function indexValue(namespace = "", name: PrerequisiteName): string {
  return `${namespace}/${prerequisiteText(name)}`
}

type Dependent = StoredJob | StoredJobArray

/** Facts about the prerequisites of a job or an array. */
export interface PrerequisiteFacts {
  states: readonly PrerequisiteState[]
  /** Reason why it doesn't start. Absent: all of them ended as it needs. */
  obstacle?: Obstacle
}

/** Caches that have the indexes `dependentIndexes`. That of Jobs lacks the settled ones. */
export interface PrerequisiteCaches {
  client: Pick<KubeClient, "get">
  jobs: Reflector<StoredJob>
  jobArrays: Reflector<StoredJobArray>
}

/** Looks up prerequisites, and says which ends are still waited for. */
export class Prerequisites {
  readonly #caches: PrerequisiteCaches

  constructor(caches: PrerequisiteCaches) {
    this.#caches = caches
  }

  /**
   * Returns the facts about what a job or an array waits for; undefined if it waits for nothing. An outcome comes from the
   * dependent's status or a live read: a cache may show an object whose name another one has by now.
   */
  async look(own: PrerequisiteName, dependent: Dependent): Promise<PrerequisiteFacts | undefined> {
    const { after = [] } = dependent.spec
    if (after.length === 0) return undefined
    const states = await Promise.all(after.map((prerequisite) => this.#state(prerequisite, dependent)))
    const isOpen = states.some(({ uid, outcome }) => uid !== undefined && outcome === undefined)
    const { namespace } = dependent.metadata
    const circle = isOpen ? findCircle(own, dependent, (name) => this.#cached(name, namespace)) : undefined
    const obstacle = obstacleOf(states, circle)
    return { states, ...(obstacle && { obstacle }) }
  }

  async #state(prerequisite: Prerequisite, dependent: Dependent): Promise<PrerequisiteState> {
    const { namespace } = dependent.metadata
    const record = recordOf(prerequisite, dependent)
    if (record?.outcome !== undefined) return prerequisiteState(prerequisite, record, undefined)
    const cached = this.#cached(prerequisite, namespace)
    const state = prerequisiteState(prerequisite, record, cached)
    // Its end, and its deletion, will requeue the dependent.
    if (state.progress !== undefined) return state
    return prerequisiteState(prerequisite, record, await this.#live(prerequisite, namespace))
  }

  #cached({ job, array = "" }: PrerequisiteName, namespace = ""): Dependent | undefined {
    const { jobs, jobArrays } = this.#caches
    return job === undefined
      ? jobArrays.store.getByKey(`${namespace}/${array}`)
      : jobs.store.getByKey(`${namespace}/${job}`)
  }

  #live({ job, array = "" }: PrerequisiteName, namespace: string | undefined): Promise<Dependent | undefined> {
    const { client } = this.#caches
    return job === undefined
      ? ifFound<Dependent>(client.get(JOB_ARRAYS, { namespace, name: array }))
      : ifFound<Dependent>(client.get(JOBS, { namespace, name: job }))
  }

  /** Returns true while a job or an array lacks the outcome of this one. It must not be deleted then. */
  isAwaited(name: PrerequisiteName, { namespace, uid }: { namespace?: string; uid: string }): boolean {
    const lacks = (dependent: Dependent) => {
      if (dependent.metadata.deletionTimestamp !== undefined || hasEnded(dependent)) return false
      const record = recordOf(name, dependent)
      return record === undefined || (record.uid === uid && record.outcome === undefined)
    }
    return this.#dependents(name, namespace).some(lacks)
  }

  #dependents(name: PrerequisiteName, namespace: string | undefined): Dependent[] {
    const { jobs, jobArrays } = this.#caches
    const value = indexValue(namespace, name)
    return [...jobs.store.byIndex(PREREQUISITE_INDEX, value), ...jobArrays.store.byIndex(PREREQUISITE_INDEX, value)]
  }

  /** Sources of the jobs for which a prerequisite has changed, and of those whose outcome all dependents have. */
  jobSources(): Source[] {
    return this.#sources(this.#caches.jobs.store, "job")
  }

  /** Sources of the arrays for which a prerequisite has changed, and of those whose outcome all dependents have. */
  arraySources(): Source[] {
    return this.#sources(this.#caches.jobArrays.store, "array")
  }

  #sources(woken: Pick<Store<Dependent>, "byIndex">, kind: "job" | "array"): Source[] {
    const waiting = (change: Change<Dependent>, changed: "job" | "array"): string[] => {
      const { namespace, name = "" } = (change.current ?? change.old)?.metadata ?? {}
      const prerequisite = { [changed]: name }
      const dependents = woken.byIndex(PREREQUISITE_INDEX, indexValue(namespace, prerequisite))
      return dependents.length > 0 && hasMoved(prerequisite, change) ? dependents.map(keyOf) : []
    }
    const { jobs, jobArrays } = this.#caches
    return [
      watchSource(jobs, (change) => [...waiting(change, "job"), ...released(change, kind)]),
      watchSource(jobArrays, (change) => [...waiting(change, "array"), ...released(change, kind)]),
    ]
  }
}

/** Returns the keys of the prerequisites whose outcome a dependent has now, or needs no more. */
function released({ old, current }: Change<Dependent>, kind: "job" | "array"): string[] {
  const { metadata, spec } = (current ?? old) as Dependent
  const isFree = (name: PrerequisiteName, dependent: Dependent) =>
    hasEnded(dependent) || recordOf(name, dependent)?.outcome !== undefined
  const isFreed = (name: PrerequisiteName) =>
    (current === undefined || isFree(name, current)) && !(old !== undefined && isFree(name, old))
  return (spec.after ?? [])
    .filter((name) => name[kind] !== undefined && isFreed(name))
    .map((name) => `${metadata.namespace ?? ""}/${name[kind]}`)
}

function hasEnded({ status }: Dependent): boolean {
  return status?.completionTime !== undefined
}

/** Returns true if a change of a prerequisite means something for what waits for it. */
function hasMoved(name: PrerequisiteName, { old, current }: Change<Dependent>): boolean {
  const state = (object: Dependent | undefined) => object && prerequisiteState(name, undefined, object)
  return !isDeepStrictEqual(state(old), state(current))
}
