import { expect, test } from "vitest"
import { systemClock } from "../../core/apis/clock.ts"
import type { StoredConnection } from "../../core/apis/connection.ts"
import { connectedRegistries } from "./registries.ts"

const connection = (name: string): StoredConnection => ({
  apiVersion: "berth.dev/v1alpha1",
  kind: "Connection",
  metadata: {
    name,
    namespace: "team",
    uid: name,
    resourceVersion: "1",
    generation: 1,
    creationTimestamp: "2026-01-01T00:00:00Z",
  },
  spec: { type: "dockerhub" },
})

/** Returns the answer, and the number of live reads that it cost. */
async function answerFor(isFirst: boolean, cached: StoredConnection[] | undefined, live: StoredConnection[]) {
  let reads = 0
  const open = connectedRegistries({
    connections: {
      cached: () => cached,
      live: () => {
        reads++
        return Promise.resolve(live)
      },
    },
    credentials: () => Promise.resolve({}),
    providers: { dockerhub: { serves: () => true, access: async () => ({ token: "t" }) } },
    clock: systemClock,
  })
  const { token, expiration } = await open({ namespace: "team", launch: "l-1", image: "team/app:1", isFirst })
  return { token, isFinal: expiration === undefined, reads }
}

test("a first registration reads no connection live", async () => {
  const one = [connection("one")]
  expect(await answerFor(true, one, one)).toEqual({ token: "t", isFinal: true, reads: 0 })
  expect(await answerFor(true, [], [])).toEqual({ token: undefined, isFinal: false, reads: 0 })
})

test("a later registration reads connections live, and so does a first one before the cache is filled", async () => {
  const one = [connection("one")]
  expect(await answerFor(false, [], one)).toEqual({ token: "t", isFinal: true, reads: 1 })
  expect(await answerFor(false, one, [])).toEqual({ token: undefined, isFinal: true, reads: 1 })
  expect(await answerFor(true, undefined, one)).toEqual({ token: "t", isFinal: true, reads: 1 })
})
