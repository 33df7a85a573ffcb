import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { FileLogStore } from "../../src/api/logs/file-store.ts"
import type { JobRef } from "../../src/api/logs/store.ts"
import { removeOrphanedLogs } from "../../src/api/resources/jobs/logs.ts"
import type { JobStatus } from "../../src/core/apis/job.ts"
import { type Finish, launchName, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { API_KEYS, JOBS, LAUNCHES } from "../../src/core/resources.ts"
import { makeKey } from "../harness/api-keys.ts"
import { agentOf, launchOf } from "../harness/builders.ts"
import { caller, created, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture, removeJob, setStatus } from "../harness/facade-project.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"

const fixture = projectFixture("facade-logs")
let replica: Replica
const call = caller(() => replica, fixture)

beforeAll(async () => {
  replica = await startReplica()
})
afterAll(() => replica.close())

/** Creates a job and functions that write its log and its status. */
async function job(): Promise<{
  name: string
  ref: JobRef
  write: (text: string) => Promise<void>
  set: (status: JobStatus) => Promise<void>
}> {
  const { job_id, name } = await created(await call("/1/jobs", { body: { image: "a" } }))
  const ref = { namespace: fixture.namespace, uid: job_id }
  let length = 0
  return {
    name,
    ref,
    write: async (text) => {
      length = (await replica.logStore.append({ job: ref, launch: 1 }, length, Buffer.from(text))).length
    },
    set: async (status) => void (await setStatus(fixture, name, status)),
  }
}

/** Reads a response piece by piece. */
function reader(response: Awaited<ReturnType<typeof call>>) {
  const pieces = response.body?.getReader()
  let text = ""
  const next = async (): Promise<boolean> => {
    const piece = await pieces?.read()
    if (piece?.value !== undefined) text += Buffer.from(piece.value as Uint8Array).toString()
    return piece?.done ?? true
  }
  return {
    /** Reads until the text ends with `end`. */
    async until(ending: string): Promise<void> {
      while (!text.endsWith(ending)) if (await next()) throw new Error(`ended after ${JSON.stringify(text)}`)
    },
    async toTheEnd(): Promise<string> {
      while (!(await next()));
      return text
    },
    cancel: async () => void (await pieces?.cancel()),
  }
}

const completionTime = "2126-01-01T00:00:00Z"

/** Creates the Launch of a job; returns its name, and a function that writes the agent's last report. */
async function launch(job: string): Promise<{ name: string; finish: (reason: Finish["reason"]) => Promise<void> }> {
  const { spec, metadata } = launchOf(await fixture.client.get(JOBS, { namespace: fixture.namespace, name: job }))
  const ref = { namespace: SYSTEM_NAMESPACE, name: launchName(spec.job.uid, 1) }
  await fixture.client.create(LAUNCHES, { kind: "Launch", metadata: ref, spec } as StoredLaunch)
  launched.push(ref)
  const finish = async (reason: Finish["reason"]): Promise<void> => {
    const agent = agentOf({ finish: { reason, time: metadata.creationTimestamp } })
    await fixture.client.patchStatus(LAUNCHES, ref, { merge: { status: { agent } } })
  }
  return { name: ref.name, finish }
}

const launched: { namespace: string; name: string }[] = []
afterAll(() => Promise.all(launched.map((ref) => fixture.client.delete(LAUNCHES, ref))))

describe("GET /1/jobs/{id|name}/logs", () => {
  it("returns the log as plain text, empty if there is none, and its last lines with tail", async () => {
    const { name, ref, write } = await job()
    const empty = await call(`/1/jobs/${name}/logs`)
    expect([empty.status, await empty.text()]).toEqual([200, ""])
    expect(empty.headers.get("content-type")).toBe("text/plain; charset=utf-8")
    await write("one\ntwo\nthree\n")
    expect(await (await call(`/1/jobs/${ref.uid}/logs`, { key: fixture.keys.viewer })).text()).toBe("one\ntwo\nthree\n")
    expect(await (await call(`/1/jobs/${name}/logs?tail=2`)).text()).toBe("two\nthree\n")
    expect(await (await call(`/1/jobs/${name}/logs?tail=0`)).text()).toBe("")
    expect(await (await call(`/1/jobs/${name}/logs?follow=false&tail=1`)).text()).toBe("three\n")
  })

  it("puts the times before the lines of a stored log, a tail and a follow, for each role", async () => {
    const { name, ref, set } = await job()
    const times = ["2026-11-24T10:00:00.500Z", "2026-11-24T10:07:00.000Z"] as const
    const write = (offset: number, text: string, time: string) =>
      replica.logStore.append({ job: ref, launch: 1 }, offset, Buffer.from(text), [{ offset, time: Date.parse(time) }])
    await write(0, "one\ntwo\n", times[0])
    const stored = `${times[0]} one\n${times[0]} two\n`
    const { viewer } = fixture.keys
    expect(await (await call(`/1/jobs/${name}/logs?timestamps=true`, { key: viewer })).text()).toBe(stored)
    expect(await (await call(`/1/jobs/${name}/logs?timestamps=false`)).text()).toBe("one\ntwo\n")
    const log = reader(await call(`/1/jobs/${name}/logs?timestamps=true&tail=1&follow=true`))
    await log.until(`${times[0]} two\n`)
    await write(8, "three", times[1])
    await log.until(`${times[1]} three`)
    await set({ phase: "succeeded", completionTime, vm: { state: "terminated" } })
    expect(await log.toTheEnd()).toBe(`${times[0]} two\n${times[1]} three`)
    const last = await call(`/1/jobs/${name}/logs?timestamps=true&tail=2`)
    expect(await last.text()).toBe(`${times[0]} two\n${times[1]} three`)
  })

  it("rejects invalid log parameters with 400, and lists them all", async () => {
    const response = await call("/1/jobs/unknown/logs?follow=yes&tail=-1&timestamps=utc&lines=3")
    expect(response.status).toBe(400)
    expect((await problemIn(response)).errors).toHaveLength(4)
  })

  it("returns 404 for the log of an unknown job", async () => {
    expect((await call("/1/jobs/unknown/logs?follow=true")).status).toBe(404)
  })

  it("follows a log from before its first byte until the job has ended and its last VM is deleted", async () => {
    const { name, write, set } = await job()
    const response = await call(`/1/jobs/${name}/logs?follow=true`)
    expect(response.status).toBe(200)
    const log = reader(response)
    await write("early\n")
    await log.until("early\n")
    await set({ phase: "running", vm: { state: "running" } })
    await write("late\n")
    await log.until("late\n")
    await set({ phase: "succeeded", completionTime, vm: { state: "terminating" } })
    await write("last words\n")
    await log.until("last words\n")
    await set({ vm: { state: "terminated" } })
    expect(await log.toTheEnd()).toBe("early\nlate\nlast words\n")
  })

  it("ends a follow at once for a job that has ended, with the whole log", async () => {
    const { name, write, set } = await job()
    await write("all\n")
    await set({ phase: "failed", completionTime, vm: { state: "terminated" } })
    expect(await (await call(`/1/jobs/${name}/logs?follow=true`)).text()).toBe("all\n")
  })

  it("ends a follow before the VM is deleted if its agent has reported the end, which it does after the last log line", async () => {
    const { name, write, set } = await job()
    const { name: current, finish } = await launch(name)
    const launches = { count: 1, current }
    await write("all\n")
    await finish("DeadlineExceeded")
    await set({ phase: "failed", reason: "DeadlineExceeded", completionTime, vm: { state: "terminating" }, launches })
    expect(await (await call(`/1/jobs/${name}/logs?follow=true`)).text()).toBe("all\n")
  })

  it("waits for the last log lines of a VM that the timeout ended without its agent's report", async () => {
    const { name, write, set } = await job()
    const { name: current, finish } = await launch(name)
    const launches = { count: 1, current }
    await set({ phase: "failed", reason: "DeadlineExceeded", completionTime, vm: { state: "terminating" }, launches })
    const log = reader(await call(`/1/jobs/${name}/logs?follow=true`))
    await write("last words\n")
    await log.until("last words\n")
    await finish("Stopped")
    expect(await log.toTheEnd()).toBe("last words\n")
  })

  it("ends a follow after a timeout if the VM's deletion is slow", async () => {
    const { name, write, set } = await job()
    await write("all\n")
    await set({ phase: "cancelled", completionTime: "2026-01-01T00:00:00Z", vm: { state: "terminating" } })
    expect(await (await call(`/1/jobs/${name}/logs?follow=true`)).text()).toBe("all\n")
  })

  it("ends a follow when the job is deleted, and deletes its log", async () => {
    const { name, ref, write } = await job()
    const log = reader(await call(`/1/jobs/${name}/logs?follow=true`))
    await write("some\n")
    await log.until("some\n")
    await removeJob(fixture, { namespace: fixture.namespace, name })
    await log.toTheEnd()
    await eventually(async () => expect(await kept(ref)).toBe(false))
  })

  it("stops a follow whose client disconnects, and continues the others", async () => {
    const { name, write, set } = await job()
    const first = reader(await call(`/1/jobs/${name}/logs?follow=true`))
    const second = reader(await call(`/1/jobs/${name}/logs?follow=true`))
    await write("a\n")
    await Promise.all([first.until("a\n"), second.until("a\n")])
    await first.cancel()
    await write("b\n")
    await second.until("b\n")
    await set({ phase: "succeeded", completionTime })
    expect(await second.toTheEnd()).toBe("a\nb\n")
    // An error line in the façade's own log would be a bug.
    expect(replica.logged()).not.toContain('"level":"error"')
  })

  it("ends a follow soon after its key's revocation", async () => {
    const { name, write } = await job()
    const key = await makeKey(fixture.client, fixture.namespace, "viewer", { name: "follower" })
    const log = reader(await call(`/1/jobs/${name}/logs?follow=true`, { key }))
    await write("seen\n")
    await log.until("seen\n")
    await fixture.client.delete(API_KEYS, { namespace: fixture.namespace, name: "follower" })
    expect(await log.toTheEnd()).toBe("seen\n")
  })

  it("returns a long log completely, to a reader slower than the store", async () => {
    const { name, write } = await job()
    const line = `${"x".repeat(99)}\n`
    for (let piece = 0; piece < 40; piece++) await write(line.repeat(600))
    const text = await (await call(`/1/jobs/${name}/logs`)).text()
    expect(text).toBe(line.repeat(24_000))
  })

  it("answers HEAD of a follow at once", async () => {
    const { name } = await job()
    const headers = { "X-Request-Id": "head-of-a-follow" }
    expect((await call(`/1/jobs/${name}/logs?follow=true`, { method: "HEAD", headers })).status).toBe(200)
    await eventually(() => expect(replica.logged()).toMatch(/"id":"head-of-a-follow".*"request completed"/))
  })

  it("returns 503 with Retry-After if the log store can't be read", async () => {
    const broken = await startReplica({ logStore: new FileLogStore("/dev/null") })
    try {
      const { name } = await job()
      const response = await caller(() => broken, fixture)(`/1/jobs/${name}/logs`)
      expect([response.status, response.headers.get("retry-after")]).toEqual([503, "10"])
      expect((await problemIn(response)).detail).toMatch(/log store/)
    } finally {
      await broken.close()
    }
  })

  it("ends all follows when the process stops", async () => {
    const ending = await startReplica()
    try {
      const { name } = await job()
      const log = reader(await caller(() => ending, fixture)(`/1/jobs/${name}/logs?follow=true`))
      ending.shutdown.abort()
      expect(await log.toTheEnd()).toBe("")
    } finally {
      await ending.close()
    }
  })
})

describe("logs of deleted jobs", () => {
  it("deletes logs at startup whose jobs were deleted while no façade ran, and keeps the others", async () => {
    const { ref, write } = await job()
    await write("kept\n")
    const orphan = { namespace: fixture.namespace, uid: "7d4c0f4e-6c1a-4df0-9f43-2f1a3d1c9b52" }
    await replica.logStore.append({ job: orphan, launch: 1 }, 0, Buffer.from("orphaned\n"))
    await removeOrphanedLogs({
      client: fixture.client,
      jobs: replica.jobs,
      logStore: replica.logStore,
      usageStore: replica.usageStore,
      logger: silentLogger,
    })
    await eventually(async () => expect(await kept(orphan)).toBe(false))
    expect(await kept(ref)).toBe(true)
  })
})

async function kept(ref: JobRef): Promise<boolean> {
  for await (const { uid } of replica.logStore.list()) if (uid === ref.uid) return true
  return false
}

it("the façade limits the logs that a principal follows at the same time, and no other reads", async () => {
  const limited = await startReplica({ settings: { followersPerPrincipal: 2 } })
  try {
    const callLimited = caller(() => limited, fixture)
    const { job_id } = await created(await callLimited("/1/jobs", { body: { image: "a" } }))
    const path = `/1/jobs/${job_id}/logs`
    const aborts = [new AbortController(), new AbortController()]
    for (const { signal } of aborts) expect((await callLimited(`${path}?follow=true`, { signal })).status).toBe(200)
    const refused = await callLimited(`${path}?follow=true`)
    expect(refused.status).toBe(429)
    expect(refused.headers.get("retry-after")).toBe("10")
    expect((await problemIn(refused)).detail).toContain("You follow too many logs")
    expect((await callLimited(path)).status).toBe(200)
    expect(
      (
        await callLimited(`${path}?follow=true&tail=0`, {
          key: fixture.keys.viewer,
          signal: AbortSignal.timeout(60_000),
        })
      ).status,
    ).toBe(200)
    aborts[0]?.abort()
    await eventually(async () => {
      const signal = AbortSignal.timeout(60_000)
      expect((await callLimited(`${path}?follow=true`, { signal })).status).toBe(200)
    })
  } finally {
    await limited.close()
  }
})
