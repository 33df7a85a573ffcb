import { setImmediate as turn } from "node:timers/promises"
import { expect, it } from "vitest"
import type { Logger } from "../apis/logger.ts"
import { Reflector, type ReflectorOptions } from "./reflector.ts"
import type { ApiObject } from "./resource.ts"

const nothing = (): void => undefined
const SILENT: Logger = { debug: nothing, info: nothing, warn: nothing, error: nothing }

const object = (name: string): ApiObject => ({
  metadata: { namespace: "ns", name, uid: `uid-of-${name}`, resourceVersion: "1" },
})

/** Lists of a server, page by page. The last one is followed by a watch without events. */
function clientOf(lists: (ApiObject[] | Error)[][]): ReflectorOptions<ApiObject>["client"] {
  return {
    list: () => Promise.reject(new Error("no watch of this server ends, so none resumes")),
    async *pages() {
      for (const page of lists.shift() ?? []) {
        if (page instanceof Error) throw page
        yield { apiVersion: "v1", kind: "List", metadata: { resourceVersion: "7" }, items: page } as never
      }
    },
    async *watch(_resource, { signal } = {}) {
      yield* []
      await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(new Error("the end"))))
    },
  }
}

const packing = {
  isPacked: () => true,
  textOf: (packed: ApiObject) => JSON.stringify(packed),
  objectOf: (text: string) => JSON.parse(text) as ApiObject,
}
const resource = { group: "", version: "v1", kind: "Thing", plural: "things", namespaced: true }

it("a reflector lets the event loop turn while it packs a page", async () => {
  const page = Array.from({ length: 500 }, (_, index) => object(`thing-${index}`))
  const reflector = new Reflector<ApiObject>({ client: clientOf([[page]]), resource, logger: SILENT, packing })
  const sizes = new Set<number>()
  const ending = new AbortController()
  const running = reflector.run(ending.signal)
  while (!reflector.synced) {
    sizes.add(reflector.store.list().length)
    await turn()
  }
  expect(sizes.size).toBeGreaterThanOrEqual(5)
  ending.abort()
  await running
})

it("a reflector stores a first list of packed objects page by page, and reports what a list that failed had stored in vain", async () => {
  const lists = [
    [[object("deleted"), object("kept")], new Error("the connection broke")],
    [[object("kept")], [object("added")]],
  ]
  const reflector = new Reflector<ApiObject>({
    client: clientOf(lists),
    resource,
    logger: SILENT,
    backoff: { baseSeconds: 0.001, capSeconds: 0.001 },
    packing,
  })
  const seen: string[] = []
  reflector.onChange(({ old, current }) => {
    seen.push(`${current === undefined ? "-" : "+"}${(current ?? old)?.metadata.name} ${reflector.synced}`)
  })
  const ending = new AbortController()
  const running = reflector.run(ending.signal)
  await reflector.whenSynced(AbortSignal.timeout(5000))
  expect(seen).toEqual(["+deleted false", "+kept false", "+added false", "-deleted true"])
  expect(reflector.store.list().map(({ metadata }) => metadata.name)).toEqual(["kept", "added"])
  ending.abort()
  await running
})
