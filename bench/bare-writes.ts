import { setTimeout as delay } from "node:timers/promises"
import { findCondition } from "../src/core/apis/conditions.ts"
import { crdObjects } from "../src/core/apis/crd.ts"
import { JOB, type StoredJob } from "../src/core/apis/job.ts"
import { LAUNCH, type StoredLaunch } from "../src/core/apis/launch.ts"
import type { Condition } from "../src/core/apis/schema.ts"
import type { KubeClient } from "../src/core/kube/client.ts"
import type { KubeEvent } from "../src/core/kube/core.ts"
import { events } from "../src/core/kube/events.ts"
import {
  type ApiObject,
  apiVersionOf,
  collectionPath,
  declareResource,
  objectPath,
  type Resource,
} from "../src/core/kube/resource.ts"
import type { ApiServer, WriteKind, Writes } from "./api-server.ts"

/** Group of copies of Berth's kinds: the same schemas and rules under another name, so that Berth ignores them. */
const GROUP = "bench.berth.dev"
const NAMESPACE = "default"
const CONCURRENCY = 32

const COPIED_JOBS = declareResource({ ...JOB, group: GROUP })
const COPIED_LAUNCHES = declareResource({ ...LAUNCH, group: GROUP })
const READY_SECONDS = 30

const CRDS = declareResource<ApiObject & { status?: { conditions?: Condition[] } }>({
  group: "apiextensions.k8s.io",
  version: "v1",
  kind: "CustomResourceDefinition",
  plural: "customresourcedefinitions",
  namespaced: false,
})

/** Objects that Berth has written, as models for the bare writes. */
export interface Written {
  job: StoredJob
  launch: StoredLaunch
  event: KubeEvent
}

/**
 * Makes the same writes as Berth, without Berth. The objects have the same sizes and schemas, with the same proportions
 * of creations, patches and replacements. Pooled connections send them to the API server at maximum speed.
 */
export class BareWriter {
  readonly #api: ApiServer
  readonly #written: Written
  readonly #mix: ReadonlyMap<WriteKind, number>
  #lives = 0
  #answered = 0

  private constructor(api: ApiServer, written: Written, mix: ReadonlyMap<WriteKind, number>) {
    this.#api = api
    this.#written = written
    this.#mix = mix
  }

  /** @param writes Berth's writes for this many jobs */
  static async prepare(
    { api, client }: { api: ApiServer; client: KubeClient },
    written: Written,
    { writes, jobs }: { writes: Writes; jobs: number },
  ): Promise<BareWriter> {
    for (const crd of crdObjects().filter(({ spec }) => [JOB.plural, LAUNCH.plural].includes(spec.names.plural))) {
      const copy = structuredClone(crd)
      copy.metadata.name = `${crd.spec.names.plural}.${GROUP}`
      copy.spec.group = GROUP
      await client.apply(CRDS, copy, { force: true })
      await served(client, copy.metadata.name)
    }
    const perJob = [...writes].map(([kind, count]) => [kind, Math.round(count / jobs)] as const)
    return new BareWriter(api, written, new Map(perJob.filter(([, count]) => count > 0)))
  }

  /** Writes for some time, and returns the answered writes per second. */
  async run(seconds: number): Promise<number> {
    const [before, startedAt] = [this.#answered, performance.now()]
    const ending = new AbortController()
    const worker = async (): Promise<void> => {
      while (!ending.signal.aborted) await this.#life()
    }
    const workers = Promise.all(Array.from({ length: CONCURRENCY }, worker))
    await Promise.race([delay(seconds * 1000), workers])
    // Counted while all workers still run: writes after that would only show how they end.
    const rate = (this.#answered - before) / ((performance.now() - startedAt) / 1000)
    ending.abort()
    await workers
    return rate
  }

  /** Makes all writes of one job's life. */
  async #life(): Promise<void> {
    const name = `bare-${this.#lives++}`
    const { job, launch, event } = this.#written
    const lives = [this.#lifeOf(COPIED_JOBS, job, name), this.#lifeOf(COPIED_LAUNCHES, launch, name)]
    await Promise.all([...lives, this.#lifeOf(events, event, name)])
  }

  async #lifeOf(resource: Resource, like: ApiObject & { status?: object }, name: string): Promise<void> {
    const { plural } = resource
    const { labels, annotations, finalizers } = like.metadata
    const times = (kind: WriteKind): number[] => [...Array(this.#mix.get(kind) ?? 0).keys()]
    let stored: ApiObject = like
    for (const n of times(`POST ${plural}`)) {
      const metadata = { namespace: NAMESPACE, name: `${name}-${n}`, labels, annotations, finalizers }
      const object = { ...like, apiVersion: apiVersionOf(resource), metadata }
      stored = await this.#send("POST", collectionPath(resource, NAMESPACE), object)
    }
    const path = (subresource?: string): string => objectPath(resource, stored.metadata, subresource)
    for (const n of times(`PATCH ${plural}`)) {
      stored = await this.#send("PATCH", path(), { metadata: { annotations: { n: String(n) } } })
    }
    const status = (n: number): object => ({ ...like.status, message: `write ${n}` })
    for (const n of times(`PATCH ${plural}/status`)) {
      stored = await this.#send("PATCH", path("status"), { status: status(n) })
    }
    for (const n of times(`PUT ${plural}/status`)) {
      stored = await this.#send("PUT", path("status"), { ...stored, status: status(n) })
    }
  }

  async #send(method: "POST" | "PUT" | "PATCH", path: string, body: object): Promise<ApiObject> {
    const answer = await this.#api.send(method, path, body)
    this.#answered++
    return answer as ApiObject
  }
}

async function served(client: KubeClient, crd: string): Promise<void> {
  const signal = AbortSignal.timeout(READY_SECONDS * 1000)
  const isServed = async (): Promise<boolean> =>
    findCondition((await client.get(CRDS, { name: crd })).status?.conditions, "Established")?.status === "True"
  while (!(await isServed())) await delay(50, undefined, { signal })
}
