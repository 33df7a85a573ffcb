import type { Clock } from "../apis/clock.ts"
import type { KubeObject, Stored } from "../apis/meta.ts"
import type { KubeClient } from "../kube/client.ts"
import { isNotFound } from "../kube/errors.ts"
import type { Resource } from "../kube/resource.ts"
import { compareResourceVersions } from "../kube/resource-version.ts"

/** Maximum age of the live read that confirms an object that gives rights. A broken watch can't extend these rights. */
const CONFIRMATION_SECONDS = 1
const READ_TIMEOUT_SECONDS = 5
const READS_KEPT = 1024

export interface LiveReadsOptions<T extends Stored<KubeObject>> {
  client: Pick<KubeClient, "get">
  resource: Resource<T>
  clock: Clock
}

interface LiveRead<T> {
  startedAt: number
  object: Promise<T | undefined>
}

/** Reads objects live, each at most once a second. */
export class LiveReads<T extends Stored<KubeObject>> {
  readonly #options: LiveReadsOptions<T>
  readonly #reads = new Map<string, LiveRead<T>>()

  constructor(options: LiveReadsOptions<T>) {
    this.#options = options
  }

  /**
   * Returns the newer of a cached object and the API server's, which is read at most once a second. The cache may have
   * seen a later change. Returns undefined if the object is deleted, or was created again under the same name.
   * @throws KubeError if the API server can't answer now
   */
  async newest(cached: T): Promise<T | undefined> {
    const now = this.#options.clock.monotonic()
    const id = cached.metadata.uid
    const last = this.#reads.get(id)
    const isFresh = last !== undefined && now - last.startedAt < CONFIRMATION_SECONDS
    const read = await (isFresh ? last.object : this.#read(id, cached, now))
    if (read?.metadata.uid !== id) return undefined
    return compareResourceVersions(cached.metadata.resourceVersion, read.metadata.resourceVersion) > 0 ? cached : read
  }

  #read(id: string, { metadata }: T, startedAt: number): Promise<T | undefined> {
    this.#forgetStaleReads(startedAt)
    const { client, resource } = this.#options
    const object = client.get(resource, metadata, { timeoutSeconds: READ_TIMEOUT_SECONDS }).catch((error: unknown) => {
      if (isNotFound(error)) return undefined
      this.#reads.delete(id)
      throw error
    })
    this.#reads.set(id, { startedAt, object })
    return object
  }

  #forgetStaleReads(now: number): void {
    if (this.#reads.size < READS_KEPT) return
    for (const [id, { startedAt }] of this.#reads) {
      if (now - startedAt >= CONFIRMATION_SECONDS) this.#reads.delete(id)
    }
  }
}
