import type { Clock } from "../../src/core/apis/clock.ts"
import type { StoredCronJob } from "../../src/core/apis/cronjob.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import type { KubeObject, Stored } from "../../src/core/apis/meta.ts"
import { keyOf } from "../../src/core/apis/meta.ts"
import type { Change, ChangeHandler } from "../../src/core/kube/store.ts"
import { PROJECT_LIMITS, type ProjectLimits } from "../../src/core/quota/project-limits.ts"
import { type CountedCaches, Usage } from "../../src/core/quota/usage.ts"
import { ManualClock } from "./manual-clock.ts"

type Any = Stored<KubeObject>

/** A cache that is changed by hand. */
class Cache<T extends Any> {
  readonly #handlers: ChangeHandler<T>[] = []
  readonly objects = new Map<string, T>()
  onChange(handler: ChangeHandler<T>): () => void {
    this.#handlers.push(handler)
    return () => undefined
  }
  put(current: T): T {
    const key = keyOf(current)
    const old = this.objects.get(key)
    this.objects.set(key, current)
    this.#report({ key, current, ...(old && { old }) })
    return current
  }
  remove(old: T): void {
    this.objects.delete(keyOf(old))
    this.#report({ key: keyOf(old), old })
  }
  #report(change: Change<T>): void {
    for (const handler of this.#handlers) handler(change)
  }
}

let serial = 0

/** Returns a Job whose creation is `at` seconds after 1970, with an argument of `bytes`. */
export function job(
  name: string,
  { namespace = "a", phase = "queued", bytes = 0, at = 0, labels = {} } = {},
): StoredJob {
  const creationTimestamp = new Date(at * 1000).toISOString().replace(".000Z", "Z")
  return {
    metadata: {
      name,
      namespace,
      uid: `uid-${String(++serial).padStart(6, "0")}`,
      resourceVersion: "1",
      generation: 1,
      creationTimestamp,
      labels,
    },
    spec: { image: "x", args: ["y".repeat(bytes)] },
    status: { phase, ...(phase === "succeeded" && { completionTime: creationTimestamp }) },
  } as unknown as StoredJob
}

/** Returns empty caches, their use, and limits. */
export function setUp(limits: Partial<ProjectLimits> = {}) {
  const clock = new ManualClock()
  const caches = {
    jobs: new Cache<StoredJob>(),
    cronJobs: new Cache<StoredCronJob>(),
    jobArrays: new Cache<never>(),
    apiKeys: new Cache<never>(),
    connections: new Cache<never>(),
    webhooks: new Cache<never>(),
    machines: new Cache<never>(),
  }
  const usage = new Usage(caches as never, clock)
  return { clock, ...caches, quota: { usage, limits: { ...PROJECT_LIMITS, ...limits } } }
}

/** Returns the use of limits by the objects of these caches alone. */
export function usageOf(caches: Partial<CountedCaches>, clock: Clock): Usage {
  const none = { onChange: () => () => undefined }
  const nothing = {
    jobs: none,
    cronJobs: none,
    jobArrays: none,
    apiKeys: none,
    connections: none,
    webhooks: none,
    machines: none,
  }
  return new Usage({ ...nothing, ...caches }, clock)
}
