import type { ApiObject } from "./resource.ts"

/** How an index keeps objects, apart by scope and in order, for pages of those that have some terms. */
export interface PageIndexDefinition<T extends ApiObject> {
  /** Objects of different scopes never stand on one page: a namespace, for example. Undefined: on no page at all. */
  scopeOf(object: T): string | undefined
  /** Unique within the scope; pages are sorted by it, the highest first (by code units). */
  sortKeyOf(object: T): string
  /** What a page may be filtered by: each a text that an object has or has not. Asked again when it is removed. */
  termsOf(object: T): Iterable<string>
}

/** Which page of which objects. */
export interface PageQuery {
  scope: string
  /** Only objects that have all of these. */
  terms: readonly string[]
  /** How many of them, from the first on, are passed over. */
  offset: number
  limit: number
}

/** A page, and how many objects there are on all pages. */
export interface PageOf<T> {
  objects: T[]
  total: number
}

/** Objects in a block at most. A term's bits are then 64 bytes, which V8 keeps inside the array's own object. */
const CAPACITY = 512
const WORDS = CAPACITY / 32

/**
 * Finds any page of any conjunction of terms, with its exact total, at a cost that hardly depends on how many objects
 * there are. The objects of a scope stand in order in blocks, and a block knows by bits which of its objects have a
 * term: a query looks at a few words for each block, and at objects only in the blocks that its page lies in.
 */
export class PageIndex<T extends ApiObject> {
  readonly #definition: PageIndexDefinition<T>
  readonly #scopes = new Map<string, Blocks<T>>()

  constructor(definition: PageIndexDefinition<T>) {
    this.#definition = definition
  }

  /** Adds an object. One of the same sort key must not be there. */
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

  /** The objects in the order in which they are added fastest: many at once, in no order, take several times as long. */
  inOrder(objects: Iterable<T>): T[] {
    const keyed = Array.from(objects, (object) => ({ key: this.#definition.sortKeyOf(object), object }))
    return keyed.sort((a, b) => (a.key < b.key ? -1 : 1)).map(({ object }) => object)
  }

  /** Removes an object that was added; it must not have been changed since. */
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

/** The entries of one scope, in blocks that are in ascending order, as are their entries. */
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
      // Most come in order: blocks that were filled by them stay full.
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

  /** Where the block is that the key belongs to: the first whose last key is not below it. */
  #placeOf(key: string): number {
    return firstIndex(this.#blocks.length, (at) => (this.#blocks[at] as Block<T>).lastKey >= key)
  }

  #merge(at: number): void {
    const [lower, upper] = this.#blocks.splice(at, 2) as [Block<T>, Block<T>]
    this.#blocks.splice(at, 0, new Block([...lower.entries, ...upper.entries], this.#termsOf))
  }
}

/** Half full at most, so that the next few additions don't take them apart again. */
function fitTogether(one: { size: number }, other: { size: number }): boolean {
  return one.size + other.size <= CAPACITY / 2
}

/** Bits of a block's slots, or all of them. */
type Found = Uint32Array | "all"

/**
 * At most CAPACITY entries in order. Each has a slot of its own as long as it is here, so that bits stay where they
 * are when others come between.
 */
class Block<T> {
  readonly entries: Entry<T>[] = []
  readonly #termsOf: TermsOf<T>
  /** By position. */
  readonly #slots: number[] = []
  readonly #freeSlots: number[] = Array.from({ length: CAPACITY }, (_, index) => CAPACITY - 1 - index)
  readonly #bits = new Map<string, Uint32Array>()

  /** In ascending order. */
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

  /** Whether it was here. */
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

  /** Gives away its upper half, as a block. */
  split(): Block<T> {
    const upper = this.entries.slice(CAPACITY / 2)
    for (const { key } of upper.toReversed()) this.remove(key)
    return new Block(upper, this.#termsOf)
  }

  /** The entries that have all of the terms; undefined: none. */
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

  /** Adds those of the found ones that come after the first so many, the highest first, until `objects` has `limit`. */
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

/** The first index in [0, length) for which the test holds, as it does for all after it; else the length. */
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
    // Counts in parallel: pairs, then groups of four, then all bytes by one multiplication.
    let bits = word - ((word >>> 1) & 0x55555555)
    bits = (bits & 0x33333333) + ((bits >>> 2) & 0x33333333)
    count += Math.imul((bits + (bits >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24
  }
  return count
}
