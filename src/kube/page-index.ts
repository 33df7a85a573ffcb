import type { ApiObject } from "./resource.ts"

/** Scope, order and terms of objects in an index, whose pages can be filtered by terms. */
export interface PageIndexDefinition<T extends ApiObject> {
  /**
   * Returns the scope of an object, for example its namespace. A page has objects of one scope. Undefined: on no page.
   */
  scopeOf(object: T): string | undefined
  /** Returns a key that is unique within the scope. Pages are sorted by it, the highest first (by code units). */
  sortKeyOf(object: T): string
  /** Returns the terms of an object, by which pages can be filtered. It is called again when the object is removed. */
  termsOf(object: T): Iterable<string>
}

/** Filter and position of a page. */
export interface PageQuery {
  scope: string
  /** Only objects with all of these terms. */
  terms: readonly string[]
  /** Number of objects before the page. */
  offset: number
  limit: number
}

/** Page, and the number of objects on all pages. */
export interface PageOf<T> {
  objects: T[]
  total: number
}

/**
 * Maximum number of objects in a block. A term's bits are then 64 bytes, which V8 keeps inside the array's own object.
 */
const CAPACITY = 512
const WORDS = CAPACITY / 32

/**
 * Finds any page of any conjunction of terms, with its exact total. The cost hardly depends on the number of objects.
 * The objects of a scope are sorted in blocks, and each block has a bit per object and term. A query reads a few words
 * of each block, and objects only in the blocks of its page.
 */
export class PageIndex<T extends ApiObject> {
  readonly #definition: PageIndexDefinition<T>
  readonly #scopes = new Map<string, Blocks<T>>()

  constructor(definition: PageIndexDefinition<T>) {
    this.#definition = definition
  }

  /** Adds an object. Its sort key must not be in the index yet. */
  add(object: T): void {
    const { scopeOf, sortKeyOf, termsOf } = this.#definition
    const scope = scopeOf(object)
    if (scope === undefined) return
    let blocks = this.#scopes.get(scope)
    if (blocks === undefined) {
      blocks = new Blocks(termsOf)
      this.#scopes.set(scope, blocks)
    }
    blocks.add({ key: sortKeyOf(object), object })
  }

  /**
   * Returns the objects in the order in which adding them is fastest. Adding many in random order takes several times
   * as long.
   */
  inOrder(objects: Iterable<T>): T[] {
    const keyed = Array.from(objects, (object) => ({ key: this.#definition.sortKeyOf(object), object }))
    return keyed.sort((a, b) => (a.key < b.key ? -1 : 1)).map(({ object }) => object)
  }

  /** Removes an object. It must not have changed since it was added. */
  remove(object: T): void {
    const { scopeOf, sortKeyOf } = this.#definition
    const scope = scopeOf(object)
    if (scope === undefined) return
    const blocks = this.#scopes.get(scope)
    blocks?.remove(sortKeyOf(object))
    if (blocks?.size === 0) this.#scopes.delete(scope)
  }

  page({ scope, terms, offset, limit }: PageQuery): PageOf<T> {
    return this.#scopes.get(scope)?.page([...new Set(terms)], offset, limit) ?? { objects: [], total: 0 }
  }
}

interface Entry<T> {
  key: string
  object: T
}

type TermsOf<T> = (object: T) => Iterable<string>

/** Entries of one scope, in blocks. Blocks and their entries are in ascending order. */
class Blocks<T> {
  readonly #blocks: Block<T>[] = []
  readonly #termsOf: TermsOf<T>
  size = 0

  constructor(termsOf: TermsOf<T>) {
    this.#termsOf = termsOf
  }

  add(entry: Entry<T>): void {
    this.size++
    const at = Math.min(this.#placeOf(entry.key), this.#blocks.length - 1)
    const block = this.#blocks[at]
    if (block === undefined) {
      this.#blocks.push(new Block([entry], this.#termsOf))
    } else if (block.size < CAPACITY) {
      block.add(entry)
    } else if (block.lastKey < entry.key) {
      // Most objects are added in order: blocks that are full stay full.
      this.#blocks.push(new Block([entry], this.#termsOf))
    } else {
      const upper = block.split()
      this.#blocks.splice(at + 1, 0, upper)
      const half = block.lastKey < entry.key ? upper : block
      half.add(entry)
    }
  }

  remove(key: string): void {
    const at = this.#placeOf(key)
    const block = this.#blocks[at]
    if (!block?.remove(key)) return
    this.size--
    const next = this.#blocks[at + 1]
    const previous = this.#blocks[at - 1]
    if (next !== undefined && fitTogether(block, next)) this.#merge(at)
    else if (previous !== undefined && fitTogether(previous, block)) this.#merge(at - 1)
    else if (block.size === 0) this.#blocks.splice(at, 1)
  }

  page(terms: readonly string[], offset: number, limit: number): PageOf<T> {
    const objects: T[] = []
    let total = 0
    for (let at = this.#blocks.length - 1; at >= 0; at--) {
      const block = this.#blocks[at] as Block<T>
      const found = block.having(terms)
      const count = found === undefined ? 0 : found === "all" ? block.size : ones(found)
      const skipped = Math.max(0, offset - total)
      if (found !== undefined && skipped < count) block.collect(found, skipped, { objects, limit })
      total += count
    }
    return { objects, total }
  }

  /** Returns the index of the key's block: the first whose last key is not below the key. */
  #placeOf(key: string): number {
    return firstIndex(this.#blocks.length, (at) => (this.#blocks[at] as Block<T>).lastKey >= key)
  }

  #merge(at: number): void {
    const [lower, upper] = this.#blocks.splice(at, 2) as [Block<T>, Block<T>]
    this.#blocks.splice(at, 0, new Block([...lower.entries, ...upper.entries], this.#termsOf))
  }
}

/** Returns true if both together fill at most half a block, so that the next additions don't split it again. */
function fitTogether(one: { size: number }, other: { size: number }): boolean {
  return one.size + other.size <= CAPACITY / 2
}

/** Bits of a block's slots, or all of them. */
type Found = Uint32Array | "all"

/** Up to CAPACITY entries in order. Each entry keeps its slot, so that bits don't move when others are inserted. */
class Block<T> {
  readonly entries: Entry<T>[] = []
  readonly #termsOf: TermsOf<T>
  /** Slots by position. */
  readonly #slots: number[] = []
  readonly #freeSlots: number[] = Array.from({ length: CAPACITY }, (_, index) => CAPACITY - 1 - index)
  readonly #bits = new Map<string, Uint32Array>()

  /** `entries` are in ascending order. */
  constructor(entries: readonly Entry<T>[], termsOf: TermsOf<T>) {
    this.#termsOf = termsOf
    for (const entry of entries) this.#insert(this.size, entry)
  }

  get size(): number {
    return this.entries.length
  }

  get lastKey(): string {
    return this.entries.at(-1)?.key ?? ""
  }

  add(entry: Entry<T>): void {
    this.#insert(this.#placeOf(entry.key), entry)
  }

  /** Returns true if the key was here. */
  remove(key: string): boolean {
    const at = this.#placeOf(key)
    if (this.entries[at]?.key !== key) return false
    const [{ object }] = this.entries.splice(at, 1) as [Entry<T>]
    const [slot] = this.#slots.splice(at, 1) as [number]
    this.#freeSlots.push(slot)
    for (const term of new Set(this.#termsOf(object))) {
      const bits = this.#bits.get(term)
      if (bits === undefined) throw new Error(`"${term}" is new: an object was changed while it was indexed`)
      bits[slot >>> 5] = (bits[slot >>> 5] as number) & ~(1 << (slot & 31))
      if (bits.every((word) => word === 0)) this.#bits.delete(term)
    }
    return true
  }

  /** Moves the upper half into a new block. */
  split(): Block<T> {
    const upper = this.entries.slice(CAPACITY / 2)
    for (const { key } of upper.toReversed()) this.remove(key)
    return new Block(upper, this.#termsOf)
  }

  /** Returns the entries that have all of the terms; undefined: none. */
  having(terms: readonly string[]): Found | undefined {
    let found: Uint32Array | undefined
    for (const term of terms) {
      const bits = this.#bits.get(term)
      if (bits === undefined) return undefined
      if (found === undefined) found = terms.length === 1 ? bits : bits.slice()
      else for (let word = 0; word < WORDS; word++) found[word] = (found[word] as number) & (bits[word] as number)
    }
    return found ?? "all"
  }

  /** Adds the found entries after the first `skipped` ones, the highest first, until `objects` has `limit`. */
  collect(found: Found, skipped: number, { objects, limit }: { objects: T[]; limit: number }): void {
    let left = skipped
    for (let at = this.size - 1; at >= 0 && objects.length < limit; at--) {
      const slot = this.#slots[at] as number
      const isFound = found === "all" || ((found[slot >>> 5] as number) & (1 << (slot & 31))) !== 0
      if (isFound && left-- <= 0) objects.push((this.entries[at] as Entry<T>).object)
    }
  }

  #insert(at: number, entry: Entry<T>): void {
    const slot = this.#freeSlots.pop() as number
    this.entries.splice(at, 0, entry)
    this.#slots.splice(at, 0, slot)
    for (const term of this.#termsOf(entry.object)) {
      let bits = this.#bits.get(term)
      if (bits === undefined) {
        bits = new Uint32Array(WORDS)
        this.#bits.set(term, bits)
      }
      bits[slot >>> 5] = (bits[slot >>> 5] as number) | (1 << (slot & 31))
    }
  }

  #placeOf(key: string): number {
    return firstIndex(this.size, (at) => (this.entries[at] as Entry<T>).key >= key)
  }
}

/**
 * Returns the first index in [0, length) for which the test is true, else the length. It must be true for all later
 * ones.
 */
function firstIndex(length: number, holds: (index: number) => boolean): number {
  let low = 0
  let high = length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (holds(middle)) high = middle
    else low = middle + 1
  }
  return low
}

function ones(words: Uint32Array): number {
  let count = 0
  for (const word of words) {
    // Counts bits in parallel: pairs, then groups of four, then all bytes by one multiplication.
    let bits = word - ((word >>> 1) & 0x55555555)
    bits = (bits & 0x33333333) + ((bits >>> 2) & 0x33333333)
    count += Math.imul((bits + (bits >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24
  }
  return count
}
