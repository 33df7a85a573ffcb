import type { Clock } from "../core/apis/clock.ts"
import type { Launch } from "../core/apis/launch.ts"

/** Time for which an image is used for new Launches, seconds. Clouds publish a new image every few days. */
const KEPT_SECONDS = 600

/** Maximum number of images. The oldest are removed first. */
const MOST = 10_000

/**
 * VM images that clouds named for earlier Launches. A Launch that is created with its image needs no write for it.
 * The image of a Launch never changes, so this only decides about new Launches.
 */
export class VmImages {
  readonly #clock: Pick<Clock, "monotonic">
  readonly #images = new Map<string, { id: string; until: number }>()

  constructor(clock: Pick<Clock, "monotonic">) {
    this.#clock = clock
  }

  /** Returns the image for a new Launch; undefined if the cloud has to be asked. */
  find(launch: Pick<Launch, "spec">): string | undefined {
    const known = this.#images.get(keyOf(launch))
    return known !== undefined && this.#clock.monotonic() < known.until ? known.id : undefined
  }

  add(launch: Pick<Launch, "spec">, id: string): void {
    const key = keyOf(launch)
    this.#images.delete(key)
    this.#images.set(key, { id, until: this.#clock.monotonic() + KEPT_SECONDS })
    const [oldest] = this.#images.keys()
    if (this.#images.size > MOST && oldest !== undefined) this.#images.delete(oldest)
  }

  /** Removes the image that a Launch would get. Its cloud rejected the request, maybe because of the image. */
  remove(launch: Pick<Launch, "spec">): void {
    this.#images.delete(keyOf(launch))
  }
}

/** Returns what an image depends on: the machine, and the account whose credentials name it. */
function keyOf({ spec: { offer, project, account, connection } }: Pick<Launch, "spec">): string {
  const { cloud, region, instanceType, architecture } = offer
  return JSON.stringify([cloud, region, instanceType, architecture, project, account, connection])
}
