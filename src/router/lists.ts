import type { Machine } from "./table.ts"

/** Entries that one bound stands for; each level's blocks are so many times those of the level below. */
const BLOCK_BITS = 4
const BLOCK = 2 ** BLOCK_BITS
const BLOCK_2 = BLOCK ** 2
const BLOCK_3 = BLOCK ** 3

/**
 * Bounds of one size alone would make most blocks look as if a machine in them had all that is needed: one with many
 * vCPUs and another with much memory stand side by side at the same price. So there are bounds of two sizes together:
 * of a shape, which is so much memory for each unit of the other size, the most units that any machine has with that
 * much memory each. A search takes the two shapes that its own lies between.
 */
const SHAPES = {
  /** GiB a vCPU. */
  cpu: [1, 2, 4, 8, 16],
  /** Bulk a GiB of GPU memory. */
  vramGib: [0.5, 1, 2, 4],
}

/** One size for vCPUs and memory where they are held against GPU memory: the larger of the two, at 4 GiB a vCPU. */
function bulkOf({ cpu, memoryGib }: Pick<Needs, "cpu" | "memoryGib">): number {
  return Math.max(cpu * 4, memoryGib)
}

/** Bounds of each block: vCPUs, shapes of these, memory, GPU memory, shapes of these, bulk. */
const FIRST = { cpu: 0, vramGib: SHAPES.cpu.length + 2 }
const BOUNDS = FIRST.vramGib + SHAPES.vramGib.length + 2

/** What a machine must have at least; 0 where nothing is asked. */
export interface Needs {
  cpu: number
  memoryGib: number
  /** Over all its cards. */
  vramGib: number
}

/** One bound of a block, and what it must be at least for a machine in the block to do. */
export interface Threshold {
  bound: number
  least: number
}

/** Reckons once for a search what `next` compares by. */
export function thresholdsOf(needs: Needs): readonly Threshold[] {
  const both = nearestShapes("cpu", needs.cpu, needs.memoryGib)
  return needs.vramGib === 0 ? both : [...both, ...nearestShapes("vramGib", needs.vramGib, bulkOf(needs))]
}

function nearestShapes(size: keyof typeof SHAPES, units: number, gib: number): Threshold[] {
  const shapes = SHAPES[size]
  let above = 0
  while (above < shapes.length && (shapes[above] as number) * units < gib) above++
  const leastAbove = above === shapes.length ? gib : gib / (shapes[above] as number)
  return [
    { bound: FIRST[size] + above, least: units },
    { bound: FIRST[size] + above + 1, least: leastAbove },
  ]
}

function boundsOf({ cpu, memoryGib, gpu }: Machine): number[] {
  const vramGib = (gpu?.count ?? 0) * (gpu?.vramGib ?? 0)
  const bulk = bulkOf({ cpu, memoryGib })
  const ofCpu = SHAPES.cpu.map((shape) => Math.min(cpu, memoryGib / shape))
  const ofVram = SHAPES.vramGib.map((shape) => Math.min(vramGib, bulk / shape))
  return [cpu, ...ofCpu, memoryGib, vramGib, ...ofVram, bulk]
}

interface ListParts {
  /** Where each list begins, and after the last one where it ends. */
  starts: Uint32Array
  /** Ranks of offers, ascending within a list. */
  entries: Uint32Array
  machineOf: Uint32Array
  machines: readonly Machine[]
}

/**
 * Lists of offers by price, one after the other in one array, with bounds over their blocks: a search passes over
 * blocks of machines that are all too small without looking at them.
 */
export class Lists {
  readonly #starts: Uint32Array
  readonly #entries: Uint32Array
  /** Bounds of blocks, of blocks of blocks, and of blocks of these. */
  readonly #levels: readonly Float64Array[]

  private constructor(starts: Uint32Array, entries: Uint32Array, levels: readonly Float64Array[]) {
    this.#starts = starts
    this.#entries = entries
    this.#levels = levels
  }

  /** Reckons the bounds, in steps as buildInSteps. */
  static *over({ starts, entries, machineOf, machines }: ListParts): Generator<undefined, Lists> {
    const own = new Float64Array(machines.length * BOUNDS)
    for (const [index, machine] of machines.entries()) own.set(boundsOf(machine), index * BOUNDS)
    const level1 = new Float64Array(Math.ceil(entries.length / BLOCK) * BOUNDS)
    for (let i = 0; i < entries.length; i++) {
      raise(level1, i >>> BLOCK_BITS, own, machineOf[entries[i] as number] as number)
      if (i % STEP === STEP - 1) yield
    }
    const level2 = above(level1)
    return new Lists(starts, entries, [level1, level2, above(level2)])
  }

  /** Entries of all lists. */
  get length(): number {
    return this.#entries.length
  }

  /** The first entry of a list. */
  startOf(list: number): number {
    return this.#starts[list] as number
  }

  /** The entry after the last one of a list. */
  endOf(list: number): number {
    return this.#starts[list + 1] as number
  }

  /** The rank of an entry's offer. */
  rankAt(entry: number): number {
    return this.#entries[entry] as number
  }

  /**
   * The first entry from this one on that may have what is needed: `end` when there is none. May name one that has
   * not, never passes over one that has.
   */
  next(entry: number, end: number, thresholds: readonly Threshold[]): number {
    const [level1, level2, level3] = this.#levels as [Float64Array, Float64Array, Float64Array]
    let i = entry
    while (i < end && i % BLOCK === 0) {
      if (i % BLOCK_3 === 0 && !reaches(level3, i / BLOCK_3, thresholds)) i += BLOCK_3
      else if (i % BLOCK_2 === 0 && !reaches(level2, i / BLOCK_2, thresholds)) i += BLOCK_2
      else if (!reaches(level1, i / BLOCK, thresholds)) i += BLOCK
      else return i
    }
    return Math.min(i, end)
  }
}

/** Entries between two steps. */
const STEP = 2 ** 16

function above(level: Float64Array): Float64Array {
  const blocks = level.length / BOUNDS
  const next = new Float64Array(Math.ceil(blocks / BLOCK) * BOUNDS)
  for (let i = 0; i < blocks; i++) raise(next, i >>> BLOCK_BITS, level, i)
  return next
}

function raise(bounds: Float64Array, block: number, by: Float64Array, index: number): void {
  const to = block * BOUNDS
  const from = index * BOUNDS
  // What has no cards doesn't count where cards are asked for.
  const count = by[from + FIRST.vramGib] === 0 ? FIRST.vramGib : BOUNDS
  for (let i = 0; i < count; i++) {
    const bound = by[from + i] as number
    if (bound > (bounds[to + i] as number)) bounds[to + i] = bound
  }
}

function reaches(bounds: Float64Array, block: number, thresholds: readonly Threshold[]): boolean {
  for (const { bound, least } of thresholds) {
    if ((bounds[block * BOUNDS + bound] as number) < least) return false
  }
  return true
}
