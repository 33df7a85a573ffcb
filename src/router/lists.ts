import type { Machine } from "./table.ts"

/** Entries that one bound stands for; each level's blocks are so many times those of the level below. */
const BLOCK_BITS = 4
const BLOCK = 2 ** BLOCK_BITS
const BLOCK_2 = BLOCK ** 2
const BLOCK_3 = BLOCK ** 3

/** The most that any machine among some entries has. */
interface Bounds {
  cpu: Float64Array
  memoryGib: Float64Array
  vramGib: Float64Array
}

/** What a machine must have at least; 0 where nothing is asked. */
export interface Needs {
  cpu: number
  memoryGib: number
  /** Over all its NVIDIA cards. */
  vramGib: number
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
  readonly #levels: readonly Bounds[]

  private constructor(starts: Uint32Array, entries: Uint32Array, levels: readonly Bounds[]) {
    this.#starts = starts
    this.#entries = entries
    this.#levels = levels
  }

  /** Reckons the bounds, in steps as buildInSteps. */
  static *over({ starts, entries, machineOf, machines }: ListParts): Generator<undefined, Lists> {
    const sizes = boundsOf(machines.length)
    for (const [index, { cpu, memoryGib, gpu }] of machines.entries()) {
      sizes.cpu[index] = cpu
      sizes.memoryGib[index] = memoryGib
      sizes.vramGib[index] = (gpu?.count ?? 0) * (gpu?.vramGib ?? 0)
    }
    const level1 = boundsOf(Math.ceil(entries.length / BLOCK))
    for (let i = 0; i < entries.length; i++) {
      raise(level1, i >>> BLOCK_BITS, sizes, machineOf[entries[i] as number] as number)
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
  next(entry: number, end: number, needs: Needs): number {
    const [level1, level2, level3] = this.#levels as [Bounds, Bounds, Bounds]
    let i = entry
    while (i < end && i % BLOCK === 0) {
      if (i % BLOCK_3 === 0 && !reaches(level3, i / BLOCK_3, needs)) i += BLOCK_3
      else if (i % BLOCK_2 === 0 && !reaches(level2, i / BLOCK_2, needs)) i += BLOCK_2
      else if (!reaches(level1, i / BLOCK, needs)) i += BLOCK
      else return i
    }
    return Math.min(i, end)
  }
}

/** Entries between two steps. */
const STEP = 2 ** 17

function boundsOf(length: number): Bounds {
  return {
    cpu: new Float64Array(length),
    memoryGib: new Float64Array(length),
    vramGib: new Float64Array(length),
  }
}

function above(level: Bounds): Bounds {
  const next = boundsOf(Math.ceil(level.cpu.length / BLOCK))
  for (let i = 0; i < level.cpu.length; i++) raise(next, i >>> BLOCK_BITS, level, i)
  return next
}

function raise(bounds: Bounds, block: number, by: Bounds, index: number): void {
  const cpu = by.cpu[index] as number
  const memoryGib = by.memoryGib[index] as number
  const vramGib = by.vramGib[index] as number
  if (cpu > (bounds.cpu[block] as number)) bounds.cpu[block] = cpu
  if (memoryGib > (bounds.memoryGib[block] as number)) bounds.memoryGib[block] = memoryGib
  if (vramGib > (bounds.vramGib[block] as number)) bounds.vramGib[block] = vramGib
}

function reaches(bounds: Bounds, block: number, needs: Needs): boolean {
  return (
    (bounds.cpu[block] as number) >= needs.cpu &&
    (bounds.memoryGib[block] as number) >= needs.memoryGib &&
    (bounds.vramGib[block] as number) >= needs.vramGib
  )
}
