import type { ApiObject } from "./resource.ts"

/** Scope, order and terms of objects in an index, whose pages can be filtered by terms. */
export interface PageIndexDefinition<T extends ApiObject> {
  /**
   * Returns the scope of an object, for example its namespace. A page has objects of one scope. Undefined: on no page.
   */
  scopeOf(object: T): string | undefined
  /** Returns a key that is unique within the scope. Pages are sorted by it, the highest first (by code units). */
  sortKeyOf(object: T): string
  /** Returns the terms of an object, by which pages can be filtered. */
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
  /** Only objects whose keys this accepts. */
  hasKey?: ((key: string) => boolean) | undefined
  /** Only objects with a number in this range. */
  numbers?: NumberRange | undefined
}

/** Filter, order and position of a page. */
export interface PageQuery extends MatchQuery {
  /** Default: by the sort key, the highest first. */
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

/**
 * Finds any page of any conjunction of terms, with its exact total. The objects of a scope are in a sorted array. A query
 * with a filter, or with an order of its own, looks at each entry of its range: some milliseconds among 50,000. The index
 * has keys, not objects: a store may hold these in another form.
 */
export class PageIndex<T extends ApiObject> {
  readonly #definition: PageIndexDefinition<T>
  readonly #scopes = new Map<string, Scope>()

  constructor(definition: PageIndexDefinition<T>) {
    this.#definition = definition
  }

  /** Adds an object under a key. Its sort key must not be in the index yet. */
  add(key: string, object: T): void {
    const { scopeOf, sortKeyOf, termsOf, numbers = [], groupOf } = this.#definition
    const name = scopeOf(object)
    if (name === undefined) return
    const scope = this.#scopes.get(name) ?? new Scope()
    this.#scopes.set(name, scope)
    scope.add({
      sortKey: sortKeyOf(object),
      key,
      group: scope.texts.join(groupOf?.(object)),
      terms: Array.from(new Set(termsOf(object)), (term) => scope.texts.join(term)),
      numbers: numbers.map((of) => of(object) ?? Number.NaN),
    })
  }

  /** Removes an object. Its scope and its sort key must not have changed since it was added. */
  remove(object: T): void {
    const { scopeOf, sortKeyOf } = this.#definition
    const name = scopeOf(object)
    if (name === undefined) return
    const scope = this.#scopes.get(name)
    scope?.remove(sortKeyOf(object))
    if (scope?.size === 0) this.#scopes.delete(name)
  }

  /** Returns the keys of a page. */
  page({ scope, ...query }: PageQuery): PageOf<string> {
    return this.#scopes.get(scope)?.page(query) ?? { objects: [], total: 0 }
  }

  /** Visits all objects that match, the highest sort key first. */
  visit({ scope, ...query }: MatchQuery, use: (match: Match) => void): void {
    this.#scopes.get(scope)?.visit(query, use)
  }
}

type ScopeQuery = Omit<MatchQuery, "scope">

/** Text that entries of a scope share. Equal texts are one object. */
interface Shared {
  text: string
  uses: number
}

class SharedTexts {
  readonly #known = new Map<string, Shared>()

  find(text: string): Shared | undefined {
    return this.#known.get(text)
  }

  /** Counts one more use of a text. */
  join(text: string): Shared
  join(text: string | undefined): Shared | undefined
  join(text: string | undefined): Shared | undefined {
    if (text === undefined) return undefined
    const shared = this.#known.get(text) ?? { text, uses: 0 }
    this.#known.set(text, shared)
    shared.uses++
    return shared
  }

  /** Counts one use less. */
  leave(shared: Shared): void {
    if (--shared.uses === 0) this.#known.delete(shared.text)
  }
}

/** All that the index keeps of an object. */
interface Entry {
  sortKey: string
  key: string
  group: Shared | undefined
  terms: readonly Shared[]
  /** One for each column. */
  numbers: readonly number[]
}

/** Entries of one scope, in ascending order. */
class Scope {
  readonly #entries: Entry[] = []
  readonly texts = new SharedTexts()

  get size(): number {
    return this.#entries.length
  }

  add(entry: Entry): void {
    const last = this.#entries.at(-1)
    // Most objects are added in order.
    if (last === undefined || last.sortKey < entry.sortKey) this.#entries.push(entry)
    else this.#entries.splice(this.#placeOf(entry.sortKey), 0, entry)
  }

  remove(sortKey: string): void {
    const at = this.#placeOf(sortKey)
    const entry = this.#entries[at]
    if (entry?.sortKey !== sortKey) return
    this.#entries.splice(at, 1)
    for (const term of entry.terms) this.texts.leave(term)
    if (entry.group !== undefined) this.texts.leave(entry.group)
  }

  page({ order, offset, limit, ...query }: Omit<PageQuery, "scope">): PageOf<string> {
    if (typeof order === "object") return this.#sortedPage(query, order, { offset, limit })
    const found = this.#matching(query)
    // Positions of the page in ascending order.
    const [from, to] =
      order === "lowestKeyFirst"
        ? [offset, offset + limit]
        : [Math.max(0, found.length - offset - limit), Math.max(0, found.length - offset)]
    const objects = found.slice(from, to).map(({ key }) => key)
    return { objects: order === "lowestKeyFirst" ? objects : objects.reverse(), total: found.length }
  }

  #sortedPage(query: ScopeQuery, order: PageOrder, { offset, limit }: Pick<PageQuery, "offset" | "limit">) {
    const best = new Best<{ key: string; value: number | string }>(offset + limit, comparing(order.isAscending))
    let total = 0
    this.visit(query, (match) => {
      total++
      best.offer({ key: match.key, value: order.value(match) })
    })
    const page = best.sorted().slice(offset, offset + limit)
    return { objects: page.map(({ key }) => key), total }
  }

  visit(query: ScopeQuery, use: (match: Match) => void): void {
    let numbers: readonly number[] = []
    const number = (column: number): number => numbers[column] ?? Number.NaN
    for (const entry of this.#matching(query).toReversed()) {
      numbers = entry.numbers
      use({ key: entry.key, group: entry.group?.text, number })
    }
  }

  /** Returns the entries that match, in ascending order. */
  #matching({ terms, from, before, hasKey, numbers }: ScopeQuery): readonly Entry[] {
    const first = from === undefined ? 0 : this.#placeOf(from)
    const end = before === undefined ? this.size : this.#placeOf(before)
    const range = first === 0 && end === this.size ? this.#entries : this.#entries.slice(first, end)
    const wanted = terms.map((term) => this.texts.find(term))
    if (wanted.includes(undefined)) return []
    if (wanted.length === 0 && hasKey === undefined && numbers === undefined) return range
    return range.filter(
      (entry) =>
        wanted.every((term) => entry.terms.includes(term as Shared)) &&
        (hasKey === undefined || hasKey(entry.key)) &&
        (numbers === undefined || isIn(numbers, entry.numbers[numbers.column])),
    )
  }

  /** Returns the position of the first entry whose sort key is not below this one. */
  #placeOf(sortKey: string): number {
    return firstIndex(this.size, (at) => (this.#entries[at] as Entry).sortKey >= sortKey)
  }
}

function isIn({ from = -Infinity, before = Infinity }: NumberRange, number = Number.NaN): boolean {
  return number >= from && number < before
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
