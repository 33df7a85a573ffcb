/** Line of a pull's progress (https://docs.docker.com/reference/api/engine/version/v1.47/#tag/Image/operation/ImageCreate). */
export interface PullLine {
  /** Id of a layer, or the tag. */
  id?: string
  status?: string
  /** Bytes of the layer, or seconds. */
  progressDetail?: { current?: number }
  error?: string
  errorDetail?: { message?: string }
}

/** States of a layer, in their order. Other ones, such as `Waiting` and `Retrying in 5 seconds`, are not progress. */
const STAGES = ["Downloading", "Verifying Checksum", "Download complete", "Extracting", "Pull complete"]

/** State of a layer that the engine has from before. */
const PRESENT = "Already exists"

/** Notes when a pull last made progress: a new layer, state or byte, which no earlier try had reached. */
export class PullProgress {
  readonly #monotonic: () => number
  /** Farthest that each layer came in any try: its stage, and the amount in that stage. */
  readonly #farthest = new Map<string, readonly [stage: number, amount: number]>()
  /** Layers that are unpacked in this try. */
  readonly #extracting = new Set<string>()
  #time: number

  /** @param monotonic returns the time of a monotonic clock, seconds */
  constructor(monotonic: () => number) {
    this.#monotonic = monotonic
    this.#time = monotonic()
  }

  /** Time of the last progress, by the monotonic clock. Until then, of the pull's begin. */
  get time(): number {
    return this.#time
  }

  /** True while a layer is unpacked. */
  get isExtracting(): boolean {
    return this.#extracting.size > 0
  }

  /** Begins another try. */
  begin(): void {
    this.#extracting.clear()
  }

  /** Takes a line of the engine. Returns true if the pull came farther than ever. */
  advance({ id, status = "", progressDetail }: PullLine): boolean {
    if (id === undefined) return false
    const stage = STAGES.indexOf(status === PRESENT ? "Pull complete" : status)
    const amount = progressDetail?.current ?? 0
    if (status === "Extracting") this.#extracting.add(id)
    else this.#extracting.delete(id)
    const [knownStage, knownAmount] = this.#farthest.get(id) ?? [Number.NEGATIVE_INFINITY, 0]
    if (stage < knownStage || (stage === knownStage && amount <= knownAmount)) return false
    this.#farthest.set(id, [stage, amount])
    this.#time = this.#monotonic()
    return true
  }
}
