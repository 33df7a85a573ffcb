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
  /** Columns of numbers, for example times, by which pages can be filtered and sorted. Default: none. */
  numbers?: readonly NumberColumn<T>[]
  /** Returns the group of an object, for example what created it. Default: no object has one. */
  groupOf?(object: T): string | undefined
}

/** Returns the number of an object; undefined if it has none. */
export type NumberColumn<T> = (object: T) => number | undefined

/** Numbers of a column, from the first, until before the second. */
export interface NumberRange {
  /** Place of the column in the definition. */
  column: number
  from?: number | undefined
  before?: number | undefined
}

/** Object as the index knows it. It is valid only during the call that has it. */
export interface Match {
  key: string
  group: string | undefined
  /** Returns the object's number in a column; NaN if it has none. */
  number: (column: number) => number
}

/** Order of pages by a value of their objects. Those whose value is NaN are the last. Of equal ones the newest is first. */
export interface PageOrder {
  value: (match: Match) => number | string
  isAscending: boolean
}

/** Filter of objects. */
export interface MatchQuery {
  scope: string
  /** Only objects with all of these terms. */
  terms: readonly string[]
  /** Only objects whose sort key is not below this one. */
  from?: string | undefined
  /** Only objects whose sort key is below this one. */
  before?: string | undefined
  /** Only objects whose keys this accepts. The cost of this filter grows with the number of objects. */
  hasKey?: ((key: string) => boolean) | undefined
  /** Only objects with a number in this range. The cost of this filter grows with the number of objects. */
  numbers?: NumberRange | undefined
}

/** Filter, order and position of a page. */
export interface PageQuery extends MatchQuery {
  /** Default: by the sort key, the highest first. The cost of another order grows with the number of objects. */
  order?: PageOrder | "lowestKeyFirst" | undefined
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
    const { scopeOf, sortKeyOf, termsOf, numbers = [], groupOf } = this.#definition
    const scope = scopeOf(object)
    if (scope === undefined) return
    let blocks = this.#scopes.get(scope)
    if (blocks === undefined) {
      blocks = new Blocks(numbers.length)
      this.#scopes.set(scope, blocks)
    }
    const entry = { sortKey: sortKeyOf(object), key, group: blocks.groups.join(groupOf?.(object)) }
    blocks.add({ entry, terms: termsOf(object), numbers: numbers.map((of) => of(object) ?? Number.NaN) })
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

  /** Visits all objects that match, the highest sort key first. The cost grows with their number. */
  visit({ scope, ...query }: MatchQuery, use: (match: Match) => void): void {
    const terms = [...new Set(query.terms)]
    this.#scopes.get(scope)?.visit({ ...query, terms }, use)
  }
}

type BlockQuery = Omit<MatchQuery, "scope">

/** Group of a scope's objects. They share its text. */
interface Group {
  name: string
  size: number
}

class Groups {
  readonly #known = new Map<string, Group>()

  /** Counts one more object of a group. */
  join(name: string | undefined): Group | undefined {
    if (name === undefined) return undefined
    const group = this.#known.get(name) ?? { name, size: 0 }
    this.#known.set(name, group)
    group.size++
    return group
  }

  /** Counts one object less. */
  leave(group: Group | undefined): void {
    if (group !== undefined && --group.size === 0) this.#known.delete(group.name)
  }
}

interface Entry {
  sortKey: string
  key: string
  group: Group | undefined
}

/** Entry with the rest of what the index keeps of its object. */
interface Addition {
  entry: Entry
  terms: Iterable<string>
  /** One for each column. */
  numbers: readonly number[]
}

/** Entries of one scope, in blocks. Blocks and their entries are in ascending order. */
class Blocks {
  readonly #blocks: Block[] = []
  readonly #columns: number
  readonly groups = new Groups()
  size = 0

  constructor(columns: number) {
    this.#columns = columns
  }

  add(added: Addition): void {
    this.size++
    const { sortKey } = added.entry
    const at = Math.min(this.#placeOf(sortKey), this.#blocks.length - 1)
    const block = this.#blocks[at]
    // Most objects are added in order: blocks that are full stay full.
    if (block === undefined || (block.size === CAPACITY && block.lastKey < sortKey)) {
      this.#blocks.push(new Block(this.#columns))
      this.#blocks.at(-1)?.add(added)
    } else if (block.size < CAPACITY) {
      block.add(added)
    } else {
      const upper = block.split()
      this.#blocks.splice(at + 1, 0, upper)
      const half = block.lastKey < sortKey ? upper : block
      half.add(added)
    }
  }

  remove(sortKey: string, terms: Iterable<string>): void {
    const at = this.#placeOf(sortKey)
    const block = this.#blocks[at]
    const removed = block?.remove(sortKey, terms)
    if (block === undefined || removed === undefined) return
    this.groups.leave(removed.group)
    this.size--
    const next = this.#blocks[at + 1]
    const previous = this.#blocks[at - 1]
    if (next !== undefined && fitTogether(block, next)) this.#merge(at)
    else if (previous !== undefined && fitTogether(previous, block)) this.#merge(at - 1)
    else if (block.size === 0) this.#blocks.splice(at, 1)
  }

  page({ order, ...query }: Omit<PageQuery, "scope">): PageOf<string> {
    if (typeof order === "object") return this.#sortedPage(query, order)
    const { offset, limit } = query
    const isLowestFirst = order === "lowestKeyFirst"
    const objects: string[] = []
    let total = 0
    for (let n = 0; n < this.#blocks.length; n++) {
      const block = this.#blocks[isLowestFirst ? n : this.#blocks.length - 1 - n] as Block
      const found = block.matching(query)
      const count = found === undefined ? 0 : found === "all" ? block.size : ones(found)
      const skipped = Math.max(0, offset - total)
      if (found !== undefined && skipped < count) block.collect(found, skipped, { objects, limit, isLowestFirst })
      total += count
    }
    return { objects, total }
  }

  #sortedPage({ offset, limit, ...query }: Omit<PageQuery, "scope" | "order">, order: PageOrder): PageOf<string> {
    const best = new Best<{ key: string; value: number | string }>(offset + limit, comparing(order.isAscending))
    let total = 0
    this.visit(query, (match) => {
      total++
      best.offer({ key: match.key, value: order.value(match) })
    })
    return {
      objects: best
        .sorted()
        .slice(offset, offset + limit)
        .map(({ key }) => key),
      total,
    }
  }

  visit(query: BlockQuery, use: (match: Match) => void): void {
    for (let at = this.#blocks.length - 1; at >= 0; at--) {
      const block = this.#blocks[at] as Block
      const found = block.matching(query)
      if (found !== undefined) block.visit(found, use)
    }
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

/** Returns a comparison of values, of which NaN is always the last. */
export function comparing(isAscending: boolean): (a: Valued, b: Valued) => number {
  const sign = isAscending ? 1 : -1
  return ({ value: a }, { value: b }) => {
    if (a < b) return -sign
    if (a > b) return sign
    return Number(Number.isNaN(a)) - Number(Number.isNaN(b))
  }
}

interface Valued {
  value: number | string
}

/** The first of many items in an order. It keeps few more than it is asked for, so most items cost one comparison. */
class Best<Item> {
  readonly #most: number
  readonly #compare: (a: Item, b: Item) => number
  #items: Item[] = []
  /** The last of the first items, once there are enough. */
  #last: Item | undefined

  constructor(most: number, compare: (a: Item, b: Item) => number) {
    this.#most = most
    this.#compare = compare
  }

  offer(item: Item): void {
    // Of equal items the earlier one is first.
    if (this.#last !== undefined && this.#compare(item, this.#last) >= 0) return
    this.#items.push(item)
    if (this.#items.length < 2 * this.#most) return
    this.#items = this.sorted()
    this.#last = this.#items.at(-1)
  }

  sorted(): Item[] {
    return this.#items.toSorted(this.#compare).slice(0, this.#most)
  }
}

/** Text after all sort keys. */
const AFTER_ALL = "\uffff"

/** Bits of a block's slots. */
type Bits = Uint32Array

/** Page that grows. */
interface Collected {
  objects: string[]
  limit: number
  isLowestFirst: boolean
}

/** Up to CAPACITY entries in order. Each entry keeps its slot, so that bits don't move when others are inserted. */
class Block {
  #entries: Entry[] = []
  /** Slots by position. */
  #slots: number[] = []
  #freeSlots: number[] = Array.from({ length: CAPACITY }, (_, index) => CAPACITY - 1 - index)
  /** Slots that have a term. Many terms are of one object only: they have its number instead of bits. */
  readonly #having = new Map<string, Bits | number>()
  readonly #columns: number
  /** Numbers of all columns by slot. It has place for the slots that were ever used: small projects have few. */
  #numbers = new Float64Array(0)

  constructor(columns: number) {
    this.#columns = columns
  }

  get size(): number {
    return this.#entries.length
  }

  get lastKey(): string {
    return this.#entries.at(-1)?.sortKey ?? ""
  }

  add({ entry, terms, numbers }: Addition): void {
    const slot = this.#insert(this.#placeOf(entry.sortKey), entry, numbers)
    for (const term of terms) this.#mark(term, slot)
  }

  /** Returns the removed entry; undefined if the sort key was not here. */
  remove(sortKey: string, terms: Iterable<string>): Entry | undefined {
    const at = this.#placeOf(sortKey)
    const entry = this.#entries[at]
    if (entry?.sortKey !== sortKey) return undefined
    this.#entries.splice(at, 1)
    const [slot] = this.#slots.splice(at, 1) as [number]
    this.#freeSlots.push(slot)
    for (const term of new Set(terms)) this.#unmark(term, slot)
    return entry
  }

  /** Moves the upper half into a new block, where each entry keeps its slot. */
  split(): Block {
    const half = CAPACITY / 2
    const upper = new Block(this.#columns)
    upper.#numbers = this.#numbers.slice()
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
    const slots = new Map(
      next.#entries.map((entry, at) => {
        const slot = next.#slots[at] as number
        return [slot, this.#insert(this.size, entry, next.#numbersAt(slot))]
      }),
    )
    for (const [term, having] of next.#having) {
      for (const slot of slotsOf(having)) this.#mark(term, slots.get(slot) as number)
    }
  }

  /** Returns the slots of the entries that match; undefined: none. */
  matching(query: BlockQuery): Bits | "all" | undefined {
    const { terms, from = "", before = AFTER_ALL, hasKey, numbers } = query
    const first = this.#entries[0]?.sortKey ?? ""
    if (this.lastKey < from || first >= before) return undefined
    const found = this.#withAll(terms)
    const isWhole = first >= from && this.lastKey < before && hasKey === undefined && numbers === undefined
    if (found === undefined || isWhole) return found
    const narrowed = new Uint32Array(WORDS)
    for (const [at, { sortKey, key }] of this.#entries.entries()) {
      const slot = this.#slots[at] as number
      if (found !== "all" && !has(found, slot)) continue
      if (sortKey < from || sortKey >= before || hasKey?.(key) === false) continue
      if (this.#isIn(numbers, slot)) set(narrowed, slot)
    }
    return narrowed
  }

  #isIn(range: NumberRange | undefined, slot: number): boolean {
    if (range === undefined) return true
    const { column, from = -Infinity, before = Infinity } = range
    const number = this.#number(slot, column)
    return number >= from && number < before
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

  /** Adds the keys of the found entries after the first `skipped` ones, until there are `limit`. */
  collect(found: Bits | "all", skipped: number, { objects, limit, isLowestFirst }: Collected): void {
    let left = skipped
    for (let n = 0; n < this.size && objects.length < limit; n++) {
      const at = isLowestFirst ? n : this.size - 1 - n
      const isFound = found === "all" || has(found, this.#slots[at] as number)
      if (isFound && left-- <= 0) objects.push((this.#entries[at] as Entry).key)
    }
  }

  /** Visits the found entries, the highest first. */
  visit(found: Bits | "all", use: (match: Match) => void): void {
    let slot = 0
    const number = (column: number): number => this.#number(slot, column)
    for (let at = this.size - 1; at >= 0; at--) {
      slot = this.#slots[at] as number
      if (found !== "all" && !has(found, slot)) continue
      const { key, group } = this.#entries[at] as Entry
      use({ key, group: group?.name, number })
    }
  }

  #number(slot: number, column: number): number {
    return this.#numbers[slot * this.#columns + column] ?? Number.NaN
  }

  #numbersAt(slot: number): number[] {
    return Array.from({ length: this.#columns }, (_, column) => this.#number(slot, column))
  }

  /** Inserts an entry at a position and returns its slot. */
  #insert(at: number, entry: Entry, numbers: readonly number[]): number {
    const slot = this.#freeSlots.pop() as number
    this.#entries.splice(at, 0, entry)
    this.#slots.splice(at, 0, slot)
    const end = (slot + 1) * this.#columns
    if (this.#numbers.length < end) {
      const grown = new Float64Array(Math.min(CAPACITY * this.#columns, 2 * end))
      grown.set(this.#numbers)
      this.#numbers = grown
    }
    this.#numbers.set(numbers, slot * this.#columns)
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
