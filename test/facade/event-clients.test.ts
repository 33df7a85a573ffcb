import { once } from "node:events"
import type { AddressInfo } from "node:net"
import { connect, type Socket } from "node:net"
import express from "express"
import { afterAll, beforeAll, expect, it } from "vitest"
import { CACHE_OPTIONS, type Caches } from "../../src/api/caches.ts"
import { createHttpServer } from "../../src/api/http/server.ts"
import { ChangeFeed } from "../../src/api/resources/events/feed.ts"
import { createSources } from "../../src/api/resources/events/sources.ts"
import { streamEvents } from "../../src/api/resources/events/stream.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import type { Principal } from "../../src/core/identity/principal.ts"
import type { ApiObject } from "../../src/core/kube/resource.ts"
import { type ChangeHandler, IndexedStore } from "../../src/core/kube/store.ts"
import { eventually } from "../harness/eventually.ts"

/**
 * Clients of events on a real server: several changes in a moment, and clients that read slowly. The changes are those of
 * a cache without an API server, because megabytes of them are needed: the kernel keeps some for each connection.
 */

const handlers = new Set<ChangeHandler<StoredJob>>()
const jobs = new IndexedStore<StoredJob>(CACHE_OPTIONS.jobs.indexes, CACHE_OPTIONS.jobs)
const empty = () => {
  const store = new IndexedStore<ApiObject>()
  store.advance("1")
  return { store, synced: true, onChange: () => () => undefined }
}
jobs.advance("1")
const caches = {
  jobs: { store: jobs, synced: true, onChange: (handler: ChangeHandler<StoredJob>) => void handlers.add(handler) },
  cronJobs: empty(),
  jobArrays: empty(),
  connections: empty(),
} as unknown as Caches
const feed = new ChangeFeed({
  sources: createSources({
    client: { list: () => Promise.reject(new Error("not needed")) },
    caches,
    lastHeartbeatOf: () => undefined,
  }),
  clock: systemClock,
})
const shutdown = new AbortController()
const unread: (() => number)[] = []
const principal = { id: "key", project: { id: "p", organizationId: "o", namespace: "ns" } } as Principal
const app = express().get("/", async (req, res) => {
  unread.push(() => res.writableLength)
  const call = {
    req,
    res,
    principal,
    countMore: async () => undefined,
    turn: async <R>(work: () => R) => work(),
    closed: new AbortController().signal,
    isStillAuthenticated: async () => true,
  }
  await streamEvents(
    call,
    { after: undefined, filter: { kinds: [], names: [] } },
    { feed, clock: systemClock, shutdown: shutdown.signal },
  )
})
const server = createHttpServer(app)
const open: Socket[] = []

beforeAll(async () => {
  server.listen(0, "127.0.0.1")
  await once(server, "listening")
})
afterAll(async () => {
  shutdown.abort()
  for (const socket of open) socket.destroy()
  await new Promise((resolve) => server.close(resolve))
})

let version = 1

/** Changes this many jobs of 16 KB. */
function change(count: number, message: string): void {
  for (let n = 0; n < count; n++) {
    const resourceVersion = String(++version)
    const metadata = { namespace: "ns", name: `job-${n}`, uid: `uid-${n}`, resourceVersion, generation: 1 }
    const job = {
      apiVersion: "berth.dev/v1alpha1",
      kind: "Job",
      metadata: { ...metadata, creationTimestamp: "2026-01-30T03:30:00Z" },
      spec: { image: "i", env: { TEXT: "x".repeat(16_000) } },
      status: { phase: "running", message },
    } satisfies StoredJob
    for (const changed of jobs.put(job)) {
      jobs.advance(resourceVersion)
      for (const handler of handlers) handler(changed)
    }
  }
}

/** Opens a stream; resolves when its first bytes have arrived. */
async function client(): Promise<{ socket: Socket; text: () => string }> {
  const socket = connect({ port: (server.address() as AddressInfo).port, host: "127.0.0.1" })
  open.push(socket)
  let text = ""
  socket.on("data", (piece: Buffer) => {
    text += piece.toString()
  })
  socket.write("GET / HTTP/1.1\r\nHost: test\r\n\r\n")
  await eventually(() => expect(text).toContain("id: "))
  return { socket, text: () => text }
}

it("the façade sends several changes of a job in a moment as one event, with the last state", async () => {
  const { text } = await client()
  for (let n = 0; n < 50; n++) change(2, `step ${n}`)
  await eventually(() => expect(text().match(/"step \d+"/g)).toEqual(['"step 49"', '"step 49"']))
  change(1, "later")
  await eventually(() => expect(text().match(/^event: .*/gm)).toHaveLength(3))
})

it("a client that doesn't read misses events, holds a bounded amount of memory, and gets a reset when it reads", async () => {
  const slow = await client()
  const unreadOfSlow = unread.at(-1)
  const quick = await client()
  slow.socket.pause()
  for (let round = 0; round < 12; round++) {
    change(100, `round ${round}`)
    await eventually(() => expect(quick.text().split(`"round ${round}"`)).toHaveLength(100 + 1))
  }
  const batch = 100 * 17_000
  expect(unreadOfSlow?.()).toBeGreaterThan(0)
  expect(unreadOfSlow?.()).toBeLessThan(256 * 1024 + batch)
  expect(slow.text()).not.toContain("round 11")
  slow.socket.resume()
  await eventually(() => expect(slow.text()).toContain("event: reset"))
  expect(slow.text()).not.toContain("round 11")
  change(1, "after the reset")
  await eventually(() => expect(slow.text().slice(slow.text().indexOf("event: reset"))).toContain("after the reset"))
  expect(quick.text()).not.toContain("event: reset")
})
