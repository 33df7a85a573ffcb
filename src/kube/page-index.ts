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
  /** Returns a number by whose range pages can be filtered, for example a time. Default: no object has one. */
  numberOf?(object: T): number | undefined
}

/** Numbers from the first, until before the second. */
export interface NumberRange {
  from?: number | undefined
  before?: number | undefined
}

/** Filter and position of a page. */
export interface PageQuery {
  scope: string
  /** Only objects with all of these terms. */
  terms: readonly string[]
  /** Only objects whose sort key is not below this one. */
  from?: string | undefined
  /** Only objects whose sort key is below this one. */
  before?: string | undefined
  /** Only objects whose keys begin with this text. The cost of this filter grows with the number of objects. */
  keyPrefix?: string | undefined
  /** Only objects with a number in this range. The cost of this filter grows with the number of objects. */
  numbers?: NumberRange | undefined
  /** Number of objects before the page. */
  offset: number
  limit: number
}

/** Page, and the number of objects on all pages. */
export interface PageOf<T> {
  objects: T[]
  total: number
}

/** Maximum number of objects in a block. The bits of a term are then 64 bytes. */
const CAPACITY = 512
const WORDS = CAPACITY / 32

/**
 * Finds any page of any conjunction of terms, with its exact total. The cost hardly depends on the number of objects.
 * The objects of a scope are sorted in blocks, and each block has a bit per object and term. A query reads a few words
 * of each block, and entries only in the blocks of its page. The index has keys, not objects: a store may hold these in
 * another form.
 */
export class PageIndex<T extends ApiObject> {
  readonly #definition: PageIndexDefinition<T>
  readonly #scopes = new Map<string, Blocks>()

  constructor(definition: PageIndexDefinition<T>) {
    this.#definition = definition
  }

  /** Adds an object under a key. Its sort key must not be in the index yet. */
  add(key: string, object: T): void {
    const { scopeOf, sortKeyOf, termsOf, numberOf } = this.#definition
    const scope = scopeOf(object)
    if (scope === undefined) return
    let blocks = this.#scopes.get(scope)
    if (blocks === undefined) {
      blocks = new Blocks()
      this.#scopes.set(scope, blocks)
    }
    blocks.add({ sortKey: sortKeyOf(object), key, number: numberOf?.(object) }, termsOf(object))
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
    const { scopeOf, sortKeyOf, termsOf } = this.#definition
    const scope = scopeOf(object)
    if (scope === undefined) return
    const blocks = this.#scopes.get(scope)
    blocks?.remove(sortKeyOf(object), termsOf(object))
    if (blocks?.size === 0) this.#scopes.delete(scope)
  }

  /** Returns the keys of a page. */
  page({ scope, ...query }: PageQuery): PageOf<string> {
    const terms = [...new Set(query.terms)]
    return this.#scopes.get(scope)?.page({ ...query, terms }) ?? { objects: [], total: 0 }
  }
}

type BlockQuery = Omit<PageQuery, "scope">

interface Entry {
  sortKey: string
  key: string
  number: number | undefined
}

/** Entries of one scope, in blocks. Blocks and their entries are in ascending order. */
class Blocks {
  readonly #blocks: Block[] = []
  size = 0

  add(entry: Entry, terms: Iterable<string>): void {
    this.size++
    const at = Math.min(this.#placeOf(entry.sortKey), this.#blocks.length - 1)
    const block = this.#blocks[at]
    // Most objects are added in order: blocks that are full stay full.
    if (block === undefined || (block.size === CAPACITY && block.lastKey < entry.sortKey)) {
      this.#blocks.push(new Block())
      this.#blocks.at(-1)?.add(entry, terms)
    } else if (block.size < CAPACITY) {
      block.add(entry, terms)
    } else {
      const upper = block.split()
      this.#blocks.splice(at + 1, 0, upper)
      const half = block.lastKey < entry.sortKey ? upper : block
      half.add(entry, terms)
    }
  }

  remove(sortKey: string, terms: Iterable<string>): void {
    const at = this.#placeOf(sortKey)
    const block = this.#blocks[at]
    if (!block?.remove(sortKey, terms)) return
    this.size--
    const next = this.#blocks[at + 1]
    const previous = this.#blocks[at - 1]
    if (next !== undefined && fitTogether(block, next)) this.#merge(at)
    else if (previous !== undefined && fitTogether(previous, block)) this.#merge(at - 1)
    else if (block.size === 0) this.#blocks.splice(at, 1)
  }

  page(query: BlockQuery): PageOf<string> {
    const { offset, limit } = query
    const objects: string[] = []
    let total = 0
    for (let at = this.#blocks.length - 1; at >= 0; at--) {
      const block = this.#blocks[at] as Block
      const found = block.matching(query)
      const count = found === undefined ? 0 : found === "all" ? block.size : ones(found)
      const skipped = Math.max(0, offset - total)
      if (found !== undefined && skipped < count) block.collect(found, skipped, { objects, limit })
      total += count
    }
    return { objects, total }
  }

  /** Returns the index of the sort key's block: the first whose last key is not below it. */
  #placeOf(sortKey: string): number {
    return firstIndex(this.#blocks.length, (at) => (this.#blocks[at] as Block).lastKey >= sortKey)
  }

  #merge(at: number): void {
    const [lower, upper] = this.#blocks.splice(at, 2) as [Block, Block]
    lower.append(upper)
    this.#blocks.splice(at, 0, lower)
  }
}

/** Returns true if both together fill at most half a block, so that the next additions don't split it again. */
function fitTogether(one: { size: number }, other: { size: number }): boolean {
  return one.size + other.size <= CAPACITY / 2
}

/** Text after all sort keys. */
const AFTER_ALL = "\uffff"

/** Bits of a block's slots. */
type Bits = Uint32Array

/** Up to CAPACITY entries in order. Each entry keeps its slot, so that bits don't move when others are inserted. */
class Block {
  #entries: Entry[] = []
  /** Slots by position. */
  #slots: number[] = []
  #freeSlots: number[] = Array.from({ length: CAPACITY }, (_, index) => CAPACITY - 1 - index)
  /** Slots that have a term. Many terms are of one object only: they have its number instead of bits. */
  readonly #having = new Map<string, Bits | number>()

  get size(): number {
    return this.#entries.length
  }

  get lastKey(): string {
    return this.#entries.at(-1)?.sortKey ?? ""
  }

  add(entry: Entry, terms: Iterable<string>): void {
    const slot = this.#insert(this.#placeOf(entry.sortKey), entry)
    for (const term of terms) this.#mark(term, slot)
  }

  /** Returns true if the sort key was here. */
  remove(sortKey: string, terms: Iterable<string>): boolean {
    const at = this.#placeOf(sortKey)
    if (this.#entries[at]?.sortKey !== sortKey) return false
    this.#entries.splice(at, 1)
    const [slot] = this.#slots.splice(at, 1) as [number]
    this.#freeSlots.push(slot)
    for (const term of new Set(terms)) this.#unmark(term, slot)
    return true
  }

  /** Moves the upper half into a new block, where each entry keeps its slot. */
  split(): Block {
    const half = CAPACITY / 2
    const upper = new Block()
    upper.#entries = this.#entries.splice(half)
    upper.#slots = this.#slots.splice(half)
    upper.#freeSlots = [...this.#slots]
    this.#freeSlots = [...upper.#slots]
    const moved = bitsOf(upper.#slots)
    for (const [term, having] of [...this.#having]) {
      for (const slot of slotsOf(having)) {
        if (!has(moved, slot)) continue
        this.#unmark(term, slot)
        upper.#mark(term, slot)
      }
    }
    return upper
  }

  /** Adds the entries of the next block. */
  append(next: Block): void {
    const slots = new Map(next.#entries.map((entry, at) => [next.#slots[at], this.#insert(this.size, entry)]))
    for (const [term, having] of next.#having) {
      for (const slot of slotsOf(having)) this.#mark(term, slots.get(slot) as number)
    }
  }

  /** Returns the slots of the entries that match; undefined: none. */
  matching(query: BlockQuery): Bits | "all" | undefined {
    const { terms, from = "", before = AFTER_ALL, keyPrefix = "", numbers } = query
    const first = this.#entries[0]?.sortKey ?? ""
    if (this.lastKey < from || first >= before) return undefined
    const found = this.#withAll(terms)
    const isWhole = first >= from && this.lastKey < before && keyPrefix === "" && numbers === undefined
    if (found === undefined || isWhole) return found
    const narrowed = new Uint32Array(WORDS)
    for (const [at, { sortKey, key, number }] of this.#entries.entries()) {
      const slot = this.#slots[at] as number
      if (sortKey < from || sortKey >= before || !key.startsWith(keyPrefix)) continue
      if (!isIn(numbers, number)) continue
      if (found === "all" || has(found, slot)) set(narrowed, slot)
    }
    return narrowed
  }

  #withAll(terms: readonly string[]): Bits | "all" | undefined {
    let found: Bits | undefined
    for (const term of terms) {
      const having = this.#having.get(term)
      if (having === undefined) return undefined
      const bits = typeof having === "number" ? bitsOf([having]) : having
      if (found === undefined) found = terms.length === 1 ? bits : bits.slice()
      else for (let word = 0; word < WORDS; word++) found[word] = (found[word] as number) & (bits[word] as number)
    }
    return found ?? "all"
  }

  /** Adds the keys of the found entries after the first `skipped` ones, the highest first, until there are `limit`. */
  collect(found: Bits | "all", skipped: number, { objects, limit }: { objects: string[]; limit: number }): void {
    let left = skipped
    for (let at = this.size - 1; at >= 0 && objects.length < limit; at--) {
      const isFound = found === "all" || has(found, this.#slots[at] as number)
      if (isFound && left-- <= 0) objects.push((this.#entries[at] as Entry).key)
    }
  }

  /** Inserts an entry at a position and returns its slot. */
  #insert(at: number, entry: Entry): number {
    const slot = this.#freeSlots.pop() as number
    this.#entries.splice(at, 0, entry)
    this.#slots.splice(at, 0, slot)
    return slot
  }

  #mark(term: string, slot: number): void {
    const having = this.#having.get(term)
    if (having === undefined) this.#having.set(term, slot)
    else if (typeof having !== "number") set(having, slot)
    else if (having !== slot) this.#having.set(term, bitsOf([having, slot]))
  }

  #unmark(term: string, slot: number): void {
    const having = this.#having.get(term)
    if (having === undefined) throw new Error(`"${term}" is new: an object was changed while it was indexed`)
    if (typeof having !== "number") having[slot >>> 5] = (having[slot >>> 5] as number) & ~(1 << (slot & 31))
    if (having === slot || (typeof having !== "number" && having.every((word) => word === 0))) this.#having.delete(term)
  }

  #placeOf(sortKey: string): number {
    return firstIndex(this.size, (at) => (this.#entries[at] as Entry).sortKey >= sortKey)
  }
}

function isIn(range: NumberRange | undefined, number: number | undefined): boolean {
  if (range === undefined) return true
  const { from = -Infinity, before = Infinity } = range
  return number !== undefined && number >= from && number < before
}

function has(bits: Bits, slot: number): boolean {
  return ((bits[slot >>> 5] as number) & (1 << (slot & 31))) !== 0
}

function set(bits: Bits, slot: number): void {
  bits[slot >>> 5] = (bits[slot >>> 5] as number) | (1 << (slot & 31))
}

function bitsOf(slots: readonly number[]): Bits {
  const bits = new Uint32Array(WORDS)
  for (const slot of slots) set(bits, slot)
  return bits
}

function slotsOf(having: Bits | number): number[] {
  if (typeof having === "number") return [having]
  const slots: number[] = []
  for (let slot = 0; slot < CAPACITY; slot++) if (has(having, slot)) slots.push(slot)
  return slots
}

/**
 * Returns the first index in [0, length) for which the test is true, else the length. It must be true for all later
 * ones.
 */
export function firstIndex(length: number, holds: (index: number) => boolean): number {
  let low = 0
  let high = length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (holds(middle)) high = middle
    else low = middle + 1
  }
  return low
}

function ones(words: Bits): number {
  let count = 0
  for (const word of words) {
    // Counts bits in parallel: pairs, then groups of four, then all bytes by one multiplication.
    let bits = word - ((word >>> 1) & 0x55555555)
    bits = (bits & 0x33333333) + ((bits >>> 2) & 0x33333333)
    count += Math.imul((bits + (bits >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24
  }
  return count
}
