import { describe, expect, test } from "vitest"
import { jobOf, launchOf } from "../../../test/harness/builders.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { IndexedStore } from "../../core/kube/store.ts"
import { TermStart } from "./term.ts"

const job = jobOf()
const at = (number: number, resourceVersion: string) => launchOf(job, number, { metadata: { resourceVersion } })

/** Returns a term that began when the API server had these Launches, at version 50. */
async function termFrom(live: readonly StoredLaunch[]): Promise<TermStart> {
  const term = new TermStart()
  const client = {
    async *pages() {
      yield { metadata: { resourceVersion: "50" }, items: live }
    },
  }
  await term.source(client as unknown as KubeClient, "berth-system").whenSynced(new AbortController().signal)
  return term
}

function cacheOf(launches: readonly StoredLaunch[], version = "20"): IndexedStore<StoredLaunch> {
  const store = new IndexedStore<StoredLaunch>()
  for (const launch of launches) store.put(launch)
  store.advance(version)
  return store
}

describe("the start of a term", () => {
  test.each<[string, StoredLaunch[], StoredLaunch[], string, boolean]>([
    ["the same versions", [at(1, "10")], [at(1, "10")], "20", true],
    ["a later version", [at(1, "10")], [at(1, "60")], "20", true],
    ["a Launch that was created since", [at(1, "10")], [at(1, "10"), at(2, "60")], "20", true],
    ["a later version of the whole list", [at(1, "40")], [], "50", true],
    ["an older version", [at(1, "40")], [at(1, "10")], "20", false],
    ["no version yet", [at(1, "40")], [], "20", false],
    ["a Launch that was deleted before", [], [at(1, "10")], "20", false],
  ])("is shown by the cache with %s", async (_, live, cached, version, isShown) => {
    const term = await termFrom(live)
    expect(term.isShownBy(cacheOf(cached, version))).toBe(isShown)
  })

  test("is shown by the cache for the rest of the term", async () => {
    const term = await termFrom([at(1, "10")])
    expect(term.isShownBy(cacheOf([at(1, "10")]))).toBe(true)
    expect(term.isShownBy(cacheOf([]))).toBe(true)
  })
})
