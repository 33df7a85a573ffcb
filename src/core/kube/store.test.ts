import fc from "fast-check"
import { describe, expect, test } from "vitest"
import type { ApiObject } from "./resource.ts"
import { compareResourceVersions } from "./resource-version.ts"
import { type Change, IndexedStore } from "./store.ts"

const object = (name: string, version: number, uid = `uid-of-${name}`, color = "red"): ApiObject => ({
  metadata: { namespace: "ns", name, uid, resourceVersion: String(version), labels: { color } },
})
const byColor = { color: (found: ApiObject) => [found.metadata.labels?.["color"] ?? ""] }
const keyed = (objects: ApiObject[]): Map<string, ApiObject> =>
  new Map(objects.map((found) => [`ns/${found.metadata.name}`, found]))

describe("IndexedStore", () => {
  test("finds by key, uid and index, and finds nothing by values that changed or were removed", () => {
    const store = new IndexedStore(byColor)
    store.put(object("a", 1))
    store.put(object("b", 2))
    store.put(object("a", 3, "uid-of-a", "blue"))
    expect(store.byIndex("color", "red").map(({ metadata }) => metadata.name)).toEqual(["b"])
    expect(store.byIndex("color", "blue").map(({ metadata }) => metadata.name)).toEqual(["a"])
    expect(store.getByUid("uid-of-a")).toBe(store.get({ namespace: "ns", name: "a" }))
    store.remove("ns/a")
    expect(store.byIndex("color", "blue")).toEqual([])
    expect(store.getByUid("uid-of-a")).toBeUndefined()
    expect(() => store.byIndex("size", "1")).toThrow('no index "size": this store has color')
  })

  test("reports a replaced object of the same name as a deletion and an addition", () => {
    const store = new IndexedStore()
    const [first, second] = [object("a", 1, "one"), object("a", 5, "two")]
    store.put(first)
    expect(store.put(second)).toEqual([
      { key: "ns/a", old: first },
      { key: "ns/a", current: second },
    ])
    expect(store.getByUid("one")).toBeUndefined()
    expect(store.getByUid("two")).toBe(second)
  })

  test("reports exactly the differences of a replacement, for any objects", () => {
    const contents = fc.uniqueArray(fc.tuple(fc.constantFrom("a", "b", "c", "d", "e"), fc.nat(3), fc.nat(1)), {
      selector: ([name]) => name,
    })
    const objects = contents.map((rows) =>
      rows.map(([name, version, uid]) => object(name, version + uid * 10, `${name}${uid}`)),
    )
    fc.assert(
      fc.property(objects, objects, (before, after) => {
        const store = new IndexedStore(byColor)
        store.replace(keyed(before))
        const shown = keyed(before)
        for (const { key, old, current } of store.replace(keyed(after)) satisfies Change<ApiObject>[]) {
          expect(shown.get(key)?.metadata).toEqual(old?.metadata)
          if (current === undefined) shown.delete(key)
          else shown.set(key, current)
        }
        const metadata = (map: Map<string, ApiObject>): unknown =>
          [...map.entries()].map(([k, v]) => [k, v.metadata]).sort()
        expect(metadata(shown)).toEqual(metadata(keyed(after)))
        expect(store.byIndex("color", "red")).toHaveLength(after.length)
        for (const {
          metadata: { uid },
        } of after)
          expect(store.getByUid(uid ?? "")).toBeDefined()
      }),
    )
  })

  test("lets a caller wait for a version, until its signal is aborted", async () => {
    const store = new IndexedStore()
    const signal = AbortSignal.timeout(5000)
    const waiting = store.waitFor("10", signal)
    store.advance("9")
    expect(store.reached("10")).toBe(false)
    store.advance("11")
    await waiting
    expect(store.reached("10")).toBe(true)
    const gaveUp = new AbortController()
    const hopeless = store.waitFor("12", gaveUp.signal)
    gaveUp.abort(new Error("enough"))
    await expect(hopeless).rejects.toThrow("enough")
  })

  test("resumes callers in the order of their versions, and a caller once its own is reached", async () => {
    const store = new IndexedStore()
    const signal = AbortSignal.timeout(5000)
    const resumed: string[] = []
    const waiting = ["30", "9", "100", "9", "31"].map((version) =>
      store.waitFor(version, signal).then(() => resumed.push(version)),
    )
    store.advance("30")
    await Promise.all([waiting[0], waiting[1], waiting[3]])
    expect(resumed).toEqual(["9", "9", "30"])
    store.advance("1000")
    await Promise.all(waiting)
    expect(resumed).toEqual(["9", "9", "30", "31", "100"])
  })

  test("checks a condition on one object only at its changes, and one on an index at those of its objects", async () => {
    const store = new IndexedStore(byColor)
    const signal = AbortSignal.timeout(5000)
    const checks = { b: 0, blue: 0 }
    const isBlue = store.waitUntil(
      () => ++checks.b > 0 && store.get({ namespace: "ns", name: "b" })?.metadata.labels?.["color"] === "blue",
      signal,
      { key: "ns/b" },
    )
    const hasTwo = store.waitUntil(() => ++checks.blue > 0 && store.countByIndex("color", "blue") === 2, signal, {
      index: "color",
      value: "blue",
    })
    const change = (name: string, version: number, color: string): void => {
      store.put(object(name, version, undefined, color))
      store.advance(String(version))
    }
    for (let version = 1; version <= 50; version++) change("a", version, version === 50 ? "blue" : "red")
    expect(checks).toEqual({ b: 1, blue: 2 })
    change("b", 51, "blue")
    await Promise.all([isBlue, hasTwo])
    expect(checks).toEqual({ b: 2, blue: 3 })
  })

  test("finds, changes and removes packed objects like others, for any changes", () => {
    const packing = {
      isPacked: ({ metadata }: ApiObject) => metadata.labels?.["color"] === "blue",
      textOf: (packed: ApiObject) => JSON.stringify(packed),
      objectOf: (text: string) => JSON.parse(text) as ApiObject,
    }
    const pages = {
      scopeOf: () => "all",
      sortKeyOf: ({ metadata }: ApiObject) => metadata.uid ?? "",
      termsOf: ({ metadata }: ApiObject) => Object.values(metadata.labels ?? {}),
    }
    const step = fc.record({ name: fc.constantFrom("a", "b", "ü"), color: fc.constantFrom("red", "blue", "none") })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 20 }), (steps) => {
        const stores = [new IndexedStore(byColor, { pages }), new IndexedStore(byColor, { pages, packing })]
        const seen = steps.map(({ name, color }, version) =>
          stores.map((store) => {
            const changes =
              color === "none" ? store.remove(`ns/${name}`) : store.put(object(name, version, `uid-of-${name}`, color))
            const page = store.page({ scope: "all", terms: ["blue"], offset: 0, limit: 2 })
            return [changes, page, store.list(), store.byIndex("color", "blue"), store.getByUid(`uid-of-${name}`)]
          }),
        )
        for (const [plain, packed] of seen) expect(packed).toEqual(plain)
      }),
    )
  })
})

test("resource versions compare as integers of any size", () => {
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: 2n ** 80n }), fc.bigInt({ min: 0n, max: 2n ** 80n }), (a, b) => {
      expect(Math.sign(compareResourceVersions(String(a), String(b)))).toBe(a < b ? -1 : a > b ? 1 : 0)
    }),
  )
  for (const bad of ["", "abc", "007", "-1", "1.5"]) expect(() => compareResourceVersions(bad, "1")).toThrow(TypeError)
})
