import type { UsagePoint } from "../../core/apis/usage.ts"
import { assertIndex, logPath, Serial } from "../logs/sections.ts"
import type { JobRef } from "../logs/store.ts"
import type { Objects } from "./objects.ts"
import { decodeSeries, encodeSeries, type LaunchPoint, withPoints } from "./series.ts"

/** Folder of usage in a store of logs. */
export const USAGE_FOLDER = "usage"

/** Neither a namespace nor a uid has a dot. Names without folders are no logs, which `LogStore.list` reads from folders. */
const NAME = /^([-a-z0-9]+)\.([-a-z0-9]+)\.json$/

/**
 * Store of what jobs used, an object of at most 512 KiB for each Job. A write reads the object and replaces it. Two
 * replicas rarely write the same one at the same time: then the later one wins, and points of the other may be lost.
 */
export class UsageStore {
  readonly #objects: Objects
  readonly #writes = new Serial()

  constructor(objects: Objects) {
    this.#objects = objects
  }

  /** Adds the points of a Launch. Those that are stored already are not stored again. */
  add(job: JobRef, launch: number, points: readonly UsagePoint[]): Promise<void> {
    assertIndex("launch", launch, 1)
    const name = nameOf(job)
    return this.#writes.run(job, async () => {
      const before = await this.#series(name)
      const after = withPoints(before, launch, points)
      await this.#objects.put(name, encodeSeries(after))
    })
  }

  /** Returns the points of the Job's Launches in order; none if nothing is stored. */
  read(job: JobRef): Promise<LaunchPoint[]> {
    return this.#series(nameOf(job))
  }

  /** Removes the usage of the Job; no error if there is none. */
  remove(job: JobRef): Promise<void> {
    const name = nameOf(job)
    return this.#writes.run(job, () => this.#objects.remove(name))
  }

  /** Yields every Job that has usage. */
  async *list(): AsyncGenerator<JobRef, void, void> {
    for await (const name of this.#objects.names()) {
      const [, namespace, uid] = NAME.exec(name) ?? []
      if (namespace !== undefined && uid !== undefined) yield { namespace, uid }
    }
  }

  async #series(name: string): Promise<LaunchPoint[]> {
    const bytes = await this.#objects.get(name)
    return bytes === undefined ? [] : decodeSeries(bytes)
  }
}

function nameOf(job: JobRef): string {
  const { namespace, uid } = logPath(job)
  return `${namespace}.${uid}.json`
}
