import type { GpuUse } from "./sample.ts"

/** Program that prints one line for each card, again every second. */
export const NVIDIA_SMI = [
  "nvidia-smi",
  "--query-gpu=index,utilization.gpu,memory.used",
  "--format=csv,noheader,nounits",
  // Its utilization covers at most the last second, so a longer interval would miss what is between.
  ...["-l", "1"],
]

/**
 * Least number of rounds for each second of a sample. With fewer, a short burst may be unseen. `nvidia-smi` needs some
 * time in addition to its interval, most on VMs with many cards.
 */
const LEAST_ROUNDS_PER_SECOND = 0.4

/** A card's line. A value that the card doesn't give is a word in brackets: [N/A], [Not Supported], [Unknown Error]. */
const LINE = /^(\d+), *(\d+|\[[^\]]*\]), *(\d+|\[[^\]]*\])$/

/** Number of rounds that are kept until they are taken. A sample that would need more has an unknown use. */
const MOST_ROUNDS = 600

/** Longest line that is kept until its end comes, bytes. */
const LONGEST_LINE = 4096

interface Card {
  index: number
  percent: number | undefined
  memoryMib: number | undefined
}

/** Reads what `NVIDIA_SMI` prints, in pieces of any size. */
export class GpuReader {
  readonly #cards: number
  #rest = ""
  #round: Card[] = []
  #rounds: Card[][] = []
  #isUnderstood = true

  /** @param cards number of the run's GPUs */
  constructor(cards: number) {
    this.#cards = cards
  }

  /** Forgets an unfinished line and round, because the program has started again. */
  restart(): void {
    this.#rest = ""
    this.#round = []
    this.#isUnderstood = false
  }

  add(text: string): void {
    const lines = (this.#rest + text).split(/\r?\n/)
    this.#rest = (lines.pop() ?? "").slice(-LONGEST_LINE)
    for (const line of lines) if (line.trim() !== "") this.#addLine(line.trim())
  }

  #addLine(line: string): void {
    const [, index, percent, memory] = LINE.exec(line) ?? []
    // For example "Unable to determine the device handle for GPU0000:65:00.0: Unknown Error".
    if (index === undefined) this.#isUnderstood = false
    else this.#addCard({ index: Number(index), percent: numberOf(percent), memoryMib: numberOf(memory) })
  }

  /** A round is complete when the next one begins, because nothing else ends it. */
  #addCard(card: Card): void {
    const last = this.#round.at(-1)
    if (last !== undefined && card.index <= last.index) {
      this.#rounds = [...this.#rounds.slice(1 - MOST_ROUNDS), this.#round]
      this.#round = []
    }
    this.#round.push(card)
  }

  /**
   * Returns the use since the last call; undefined if it is unknown: too few rounds, a card without a line, or a line that
   * is none of a card.
   */
  take(seconds: number): GpuUse | undefined {
    const rounds = this.#rounds
    const isUnderstood = this.#isUnderstood
    this.#rounds = []
    this.#isUnderstood = true
    if (!isUnderstood || rounds.length < Math.max(1, seconds * LEAST_ROUNDS_PER_SECOND)) return undefined
    if (rounds.some((round) => round.length < this.#cards)) return undefined
    const percents = known(rounds.flat().map(({ percent }) => percent))
    const memories = rounds.map((round) => sum(known(round.map(({ memoryMib }) => memoryMib))))
    const vram = known(memories)
    return {
      ...(percents !== undefined && {
        mean: percents.reduce((one, other) => one + other, 0) / percents.length,
        highest: Math.max(...percents),
      }),
      ...(vram !== undefined && { vramMib: Math.max(...vram) }),
    }
  }
}

function numberOf(value: string | undefined): number | undefined {
  return value === undefined || value.startsWith("[") ? undefined : Number(value)
}

/** Returns undefined if any of the values is unknown. */
function known(values: readonly (number | undefined)[]): number[] | undefined {
  const all = values.filter((value) => value !== undefined)
  return all.length === values.length ? all : undefined
}

function sum(values: readonly number[] | undefined): number | undefined {
  return values?.reduce((one, other) => one + other, 0)
}
