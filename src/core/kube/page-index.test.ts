import fc from "fast-check"
import { describe, expect, test } from "vitest"
import { keyOf } from "../apis/meta.ts"
import { PageIndex, type PageOrder, type PageQuery } from "./page-index.ts"
import type { ApiObject } from "./resource.ts"
import { IndexedStore } from "./store.ts"

interface Item extends ApiObject {
  order: number
  terms: string[]
}

const definition = {
  scopeOf: ({ metadata, order }: Item) => (order % 7 === 0 ? undefined : metadata.namespace),
  sortKeyOf: ({ order, metadata }: Item) => `${String(order).padStart(6, "0")} ${metadata.uid}`,
  termsOf: ({ terms }: Item) => terms,
  numbers: [
    ({ order }: Item) => (order % 3 === 0 ? undefined : order % 100),
    ({ metadata }: Item) => Number(metadata.uid) % 11,
  ],
  groupOf: ({ metadata }: Item) => (Number(metadata.uid) % 4 === 0 ? undefined : `group${Number(metadata.uid) % 40}`),
}

/** Orders of pages, and the values of items in them. */
const ORDERS: Record<string, { value: PageOrder["value"]; of: (item: Item) => number | string }> = {
  key: { value: ({ key }) => key, of: keyOf },
  first: { value: ({ number }) => number(0), of: (item) => definition.numbers[0]?.(item) ?? Number.NaN },
  both: { value: ({ number }) => number(0) + number(1), of: (item) => sumOf(item) },
  group: { value: ({ group = "" }) => group, of: (item) => definition.groupOf(item) ?? "" },
}

function sumOf(item: Item): number {
  return definition.numbers.reduce((sum, of) => sum + (of(item) ?? Number.NaN), 0)
}

interface Asked extends Omit<PageQuery, "order" | "hasKey"> {
  keyPart?: string | undefined
  order?: { by: string; isAscending: boolean } | "lowestKeyFirst" | undefined
}

function queryOf({ keyPart, order, ...asked }: Asked): PageQuery {
  const hasKey = keyPart === undefined ? undefined : (key: string) => key.includes(keyPart)
  if (typeof order !== "object") return { ...asked, hasKey, order }
  const { value } = ORDERS[order.by] as (typeof ORDERS)[string]
  return { ...asked, hasKey, order: { value, isAscending: order.isAscending } }
}

/** Finds a page by a scan of all items. The index must find the same. */
function bruteForce(items: Iterable<Item>, { scope, terms, offset, limit, numbers, order, ...range }: Asked) {
  const { from = "", before = "~", keyPart = "" } = range
  const { column = 0, from: least = 0, before: above = 100 } = numbers ?? {}
  const hasNumber = (number = -1) => numbers === undefined || (number >= least && number < above)
  const isWithin = (item: Item) =>
    definition.sortKeyOf(item) >= from &&
    definition.sortKeyOf(item) < before &&
    hasNumber(definition.numbers[column]?.(item))
  const newest = [...items]
    .filter((item) => definition.scopeOf(item) === scope && terms.every((term) => item.terms.includes(term)))
    .filter((item) => isWithin(item) && keyOf(item).includes(keyPart))
    .sort((a, b) => (definition.sortKeyOf(a) > definition.sortKeyOf(b) ? -1 : 1))
  const found = inOrder(newest, order)
  return { objects: found.slice(offset, offset + limit).map(keyOf), total: found.length }
}

function inOrder(newest: Item[], order: Asked["order"]): Item[] {
  if (order === undefined) return newest
  if (order === "lowestKeyFirst") return newest.toReversed()
  const { of } = ORDERS[order.by] as (typeof ORDERS)[string]
  const isNone = (item: Item) => Number.isNaN(of(item))
  const compare = (a: Item, b: Item) => (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : 0)
  const sorted = newest
    .filter((item) => !isNone(item))
    .sort((a, b) => (order.isAscending ? compare(a, b) : compare(b, a)))
  return [...sorted, ...newest.filter(isNone)]
}

/** Creates an item like a job: with a common term, some frequent ones, a unique one, and a repeated one. */
function itemOf(number: number, { order, seed }: { order: number; seed: number }): Item {
  const mixed = Math.imul(number + 1, seed * 2 + 1) >>> 7
  const terms = ["all", `half${mixed & 1}`, `eighth${(mixed >> 1) & 7}`, `own${number}`, `half${mixed & 1}`]
  const namespace = mixed % 5 === 0 ? "b" : "a"
  return {
    metadata: { namespace, name: `i${number}`, uid: `${number}`, resourceVersion: String(number) },
    order,
    terms,
  }
}

const step = fc.record({
  do: fc.constantFrom("append", "scatter", "change", "remove"),
  count: fc.integer({ min: 1, max: 1200 }),
  seed: fc.nat(999),
})

const query = fc.record({
  scope: fc.constantFrom("a", "b", "nowhere"),
  terms: fc.array(fc.constantFrom("all", "half0", "half1", "eighth3", "eighth5", "own7", "unknown"), { maxLength: 3 }),
  from: fc.option(fc.constantFrom("000000", "000300", "032000"), { nil: undefined }),
  before: fc.option(fc.constantFrom("000400", "040000", "999999"), { nil: undefined }),
  keyPart: fc.option(fc.constantFrom("a/", "a/i1", "22", "i", "7"), { nil: undefined }),
  order: fc.option(
    fc.oneof(
      fc.constant("lowestKeyFirst" as const),
      fc.record({ by: fc.constantFrom(...Object.keys(ORDERS)), isAscending: fc.boolean() }),
    ),
    { nil: undefined },
  ),
  numbers: fc.option(
    fc.record({
      column: fc.constantFrom(0, 1),
      from: fc.option(fc.constantFrom(0, 10, 50), { nil: undefined }),
      before: fc.option(fc.constantFrom(20, 99), { nil: undefined }),
    }),
    { nil: undefined },
  ),
  offset: fc.oneof(fc.nat(60), fc.nat(3000), fc.constant(Number.MAX_SAFE_INTEGER)),
  limit: fc.integer({ min: 1, max: 200 }),
})

/** Index, and the items that it must contain. */
class Both {
  readonly index = new PageIndex<Item>(definition)
  readonly items = new Map<number, Item>()
  #next = 0

  take({ do: kind, count, seed }: { do: string; count: number; seed: number }): void {
    if (kind === "append" || kind === "scatter") {
      for (let n = 0; n < count; n++, this.#next++) {
        const order = kind === "append" ? this.#next : Math.imul(this.#next + 1, 0x9e3779b1 + 2 * seed) >>> 16
        this.#add(this.#next, order, seed)
      }
      return
    }
    const chosen = [...this.items].filter(([number]) => (Math.imul(number, seed + 1) >>> 3) % 4 !== 0).slice(0, count)
    for (const [number, item] of chosen) {
      this.index.remove(item)
      this.items.delete(number)
      if (kind === "change") this.#add(number, item.order, seed)
    }
  }

  #add(number: number, order: number, seed: number): void {
    const item = itemOf(number, { order, seed })
    this.items.set(number, item)
    this.index.add(keyOf(item), item)
  }
}

describe("PageIndex", () => {
  test("finds every page that a full scan finds, after any additions, changes and removals", () => {
    const queries = fc.array(query, { minLength: 8, maxLength: 8 })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 8 }), queries, (steps, asked) => {
        const both = new Both()
        const check = (one: Asked) =>
          expect(both.index.page(queryOf(one))).toEqual(bruteForce(both.items.values(), one))
        for (const next of steps) {
          both.take(next)
          asked.slice(0, 1).forEach(check)
        }
        asked.forEach(check)
      }),
      { numRuns: 40 },
    )
  })

  test("finds the first of many in another order, however they are mixed", () => {
    const both = new Both()
    both.take({ do: "scatter", count: 4000, seed: 5 })
    for (const [by, isAscending] of Object.keys(ORDERS).flatMap((name) => [
      [name, true] as const,
      [name, false] as const,
    ]))
      for (const [offset, limit] of [
        [0, 1],
        [0, 50],
        [120, 200],
      ] as const) {
        const asked = { scope: "a", terms: [], order: { by, isAscending }, offset, limit }
        expect(both.index.page(queryOf(asked)), by).toEqual(bruteForce(both.items.values(), asked))
      }
  })

  test("visits what a full scan finds, with the group and the numbers of each", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 6 }), query, (steps, asked) => {
        const both = new Both()
        for (const next of steps) both.take(next)
        const all = { ...asked, order: undefined, offset: 0, limit: Number.MAX_SAFE_INTEGER }
        const visited: unknown[] = []
        both.index.visit(queryOf(all), ({ key, group, number }) =>
          visited.push({ key, group, numbers: [number(0), number(1)] }),
        )
        const items = new Map([...both.items.values()].map((item) => [keyOf(item), item]))
        const expected = bruteForce(both.items.values(), all).objects.map((key) => {
          const item = items.get(key) as Item
          return {
            key,
            group: definition.groupOf(item),
            numbers: definition.numbers.map((of) => of(item) ?? Number.NaN),
          }
        })
        expect(visited).toEqual(expected)
      }),
      { numRuns: 30 },
    )
  })

  test("removes an object with the terms that it was added with, though it was changed since", () => {
    const index = new PageIndex<Item>(definition)
    const found = (term: string) => index.page({ scope: "a", terms: [term], offset: 0, limit: 10 })
    const item = (number: number): Item => ({
      ...itemOf(number, { order: number, seed: 1 }),
      metadata: { namespace: "a", name: `i${number}`, uid: `${number}` },
    })
    const [changed, other] = [item(1), item(2)]
    for (const one of [changed, other]) index.add(keyOf(one), one)
    changed.terms = ["new"]
    index.remove(changed)
    expect(found("own1")).toEqual({ objects: [], total: 0 })
    expect(found("all")).toEqual({ objects: [keyOf(other)], total: 1 })
  })
})

describe("IndexedStore", () => {
  test("has pages that follow what is put, replaced and removed", () => {
    const store = new IndexedStore<Item>({}, { pages: definition })
    const names = (terms: string[]) =>
      store.page({ scope: "a", terms, offset: 0, limit: 10 }).objects.map(({ metadata }) => metadata.name)
    const item = (name: string, order: number, version: number, terms: string[] = []): Item => ({
      metadata: { namespace: "a", name, uid: name, resourceVersion: String(version) },
      order,
      terms,
    })
    store.put(item("first", 1, 1, ["queued"]))
    store.put(item("third", 3, 2, ["queued"]))
    store.put(item("second", 2, 3, ["queued"]))
    expect(names(["queued"])).toEqual(["third", "second", "first"])
    store.put(item("third", 3, 4, ["running"]))
    expect(names(["queued"])).toEqual(["second", "first"])
    store.remove("a/second")
    expect(names([])).toEqual(["third", "first"])
    store.replace(new Map([["a/fourth", item("fourth", 4, 5)]]))
    expect(names([])).toEqual(["fourth"])
    expect(() => new IndexedStore().page({ scope: "a", terms: [], offset: 0, limit: 1 })).toThrow("no order")
  })
})
