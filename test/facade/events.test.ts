import type { Response } from "undici"
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest"
import type { JobRecord } from "../../src/core/records/job.ts"
import { deleteKey, makeKey } from "../harness/api-keys.ts"
import { BASE_DOMAIN, caller, created, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { applyJob, projectFixture, removeJob, setStatus } from "../harness/facade-project.ts"

const fixture = projectFixture("facade-events")
let replicas: [Replica, Replica]
const callFirst = caller(() => replicas[0], fixture)
const callSecond = caller(() => replicas[1], fixture)

beforeAll(async () => {
  replicas = [await startReplica(), await startReplica()]
})
afterAll(() => Promise.all(replicas.map((replica) => replica.close())))

interface Event {
  event: string
  id: string
  data: Record<string, unknown>
}

/** Reads a stream of events, as a browser does. */
class Reader {
  readonly events: Event[] = []
  lastId = ""
  hasEnded = false
  readonly response: Response
  readonly #pieces: ReturnType<typeof piecesOf>

  constructor(response: Response) {
    this.response = response
    this.#pieces = piecesOf(response)
    void this.#read().catch(() => undefined)
  }

  async #read(): Promise<void> {
    let text = ""
    const decoder = new TextDecoder()
    for (let piece = await this.#pieces.read(); !piece.done; piece = await this.#pieces.read()) {
      text += decoder.decode(piece.value as Uint8Array, { stream: true })
      const blocks = text.split("\n\n")
      text = blocks.pop() ?? ""
      for (const block of blocks) this.#take(block)
    }
    this.hasEnded = true
  }

  #take(block: string): void {
    const lines = block.split("\n").map((line) => line.split(/: ?(.*)/s, 2) as [string, string])
    const field = (name: string): string | undefined => lines.find(([key]) => key === name)?.[1]
    this.lastId = field("id") ?? this.lastId
    const data = field("data")
    if (data !== undefined)
      this.events.push({ event: field("event") ?? "message", id: this.lastId, data: JSON.parse(data) as Event["data"] })
  }

  /** Resolves with the last event of an object when it meets the expectation. */
  until(name: string, expected: object): Promise<Event> {
    return eventually(() => {
      const found = this.events.findLast(({ data }) => data["name"] === name)
      expect(found).toMatchObject(expected)
      return found as Event
    })
  }

  close(): Promise<void> {
    return this.#pieces.cancel().catch(() => undefined)
  }
}

function piecesOf({ body }: Response) {
  if (body === null) throw new Error("the response has no body")
  return body.getReader()
}

const open: Reader[] = []
afterEach(async () => {
  for (const reader of open.splice(0)) await reader.close()
})

async function follow(query = "", { call = callFirst, lastId = "", key = fixture.keys.viewer } = {}): Promise<Reader> {
  const headers = lastId === "" ? {} : { "Last-Event-ID": lastId }
  const response = await call(`/1/events${query}`, { key, headers })
  expect(response.status).toBe(200)
  const reader = new Reader(response)
  open.push(reader)
  return reader
}

async function submit(name: string): Promise<string> {
  return (await created(await callFirst("/1/jobs", { body: { name, image: "i" } }))).job_id
}

describe("GET /1/events", () => {
  it("sends the record of each changed job, cronjob, array and connection to every client of the project", async () => {
    const readers = [await follow(), await follow("", { call: callSecond })]
    const [first] = readers
    expect(first?.response.headers.get("content-type")).toMatch(/^text\/event-stream/)
    expect(first?.response.headers.get("cache-control")).toBe("no-store, no-transform")
    const id = await submit("seen")
    await callFirst("/1/cronjobs", {
      body: { name: "seen-cron", cron_spec: "0 3 * * *", job_definition: { image: "i" } },
    })
    const array = { name: "seen-array", size: 2, job_definition: { image: "i" } }
    expect((await callFirst("/1/arrays", { body: array })).status).toBe(201)
    const connection = { name: "seen-aws", type: "aws", access_key_id: "a", secret_access_key: "very-secret" }
    expect((await callFirst("/1/connections", { body: connection })).status).toBe(201)
    await setStatus(fixture, "seen", { phase: "running" })
    for (const reader of readers) {
      const { data } = await reader.until("seen", { event: "job", data: { id, status: "running" } })
      const record = (await (await callFirst(`/1/jobs/${id}`)).json()) as JobRecord
      expect(data).toEqual(record)
      await reader.until("seen-cron", { event: "cronjob", data: { cron_spec: "0 3 * * *" } })
      await reader.until("seen-array", { event: "array", data: { size: 2 } })
      await reader.until("seen-aws", { event: "connection", data: { type: "aws", secret_access_key: null } })
    }
    expect((await callFirst("/1/cronjobs/seen-cron", { method: "DELETE" })).status).toBe(204)
    await removeJob(fixture, { namespace: fixture.namespace, name: "seen" })
    for (const reader of readers) {
      const deleted = { id, name: "seen", deleted: true }
      expect((await reader.until("seen", { event: "job", data: { deleted: true } })).data).toEqual(deleted)
      await reader.until("seen-cron", { event: "cronjob", data: { deleted: true } })
    }
  })

  it("sends only the kinds and names that are asked for", async () => {
    const [jobs, wanted] = [await follow("?kind=job"), await follow("?kind=cronjob&kind=job&name=wanted&name=unknown")]
    await submit("other")
    const id = await submit("wanted")
    const byId = await follow(`?name=${id}`)
    await setStatus(fixture, "other", { phase: "running" })
    await setStatus(fixture, "wanted", { phase: "running" })
    await jobs.until("other", { data: { status: "running" } })
    for (const reader of [wanted, byId]) {
      await reader.until("wanted", { data: { status: "running" } })
      expect(reader.events.filter(({ data }) => data["name"] !== "wanted")).toEqual([])
    }
  })

  it("resumes on another replica with what has changed since, deletions included, and nothing else", async () => {
    const before = await follow()
    for (const name of ["kept", "changed", "deleted"]) await submit(name)
    for (const name of ["kept", "changed", "deleted"]) await before.until(name, { data: { status: "queued" } })
    await before.close()
    await setStatus(fixture, "changed", { phase: "running" })
    await removeJob(fixture, { namespace: fixture.namespace, name: "deleted" })
    await submit("added")
    const after = await follow("", { call: callSecond, lastId: before.lastId })
    await after.until("changed", { data: { status: "running" } })
    await after.until("deleted", { data: { deleted: true } })
    const { id } = await after.until("added", { data: { status: "queued" } })
    expect(after.events.map(({ data }) => data["name"])).not.toContain("kept")
    expect(after.events.map(({ event }) => event)).not.toContain("reset")
    const later = await follow("", { lastId: id })
    await setStatus(fixture, "kept", { phase: "running" })
    await later.until("kept", { data: { status: "running" } })
    expect(later.events.map(({ data }) => data["name"])).not.toContain("changed")
  })

  it("sends a reset if it does not know what has changed since, and continues from there", async () => {
    const before = await follow()
    await submit("early")
    const { id } = await before.until("early", { data: { status: "queued" } })
    await submit("between")
    const restarted = await startReplica()
    try {
      for (const lastId of [
        id,
        "job.1,cronjob.1,connection.1",
        "job.1",
        `job.9${"9".repeat(18)},cronjob.1,connection.1`,
      ]) {
        const after = await follow("", { call: caller(() => restarted, fixture), lastId })
        await eventually(() => expect(after.events.map(({ event }) => event)).toEqual(["reset"]))
        await setStatus(fixture, "between", { phase: "running", message: lastId })
        await after.until("between", { data: { message: lastId } })
        const resumed = await follow("", { lastId: after.events[0]?.id ?? "" })
        await resumed.until("between", { data: { message: lastId } })
        expect(resumed.events.map(({ event }) => event)).not.toContain("reset")
      }
    } finally {
      await restarted.close()
    }
  })

  it("sends nothing of another project", async () => {
    const reader = await follow()
    await applyJob(fixture, "own", {})
    await reader.until("own", { event: "job" })
    expect(reader.events.filter(({ data }) => data["project_id"] !== fixture.project)).toEqual([])
    const response = await callFirst("/1/events", { host: `unknown.${BASE_DOMAIN}` })
    expect(response.status).toBe(401)
  })

  it.each(["now", "job", "job.", "job.1,", "job.01", "job.-1", "5"])(
    "rejects the Last-Event-ID %s with 400",
    async (lastId) => {
      const response = await callFirst("/1/events", { headers: { "Last-Event-ID": lastId } })
      expect(response.status).toBe(400)
      expect((await problemIn(response)).detail).toContain(JSON.stringify(lastId))
    },
  )

  it("rejects an unknown kind, and answers HEAD without a stream", async () => {
    const response = await callFirst("/1/events?kind=launch&kind=job")
    expect(response.status).toBe(400)
    expect((await problemIn(response)).errors[0]?.detail).toContain('"launch"')
    const head = await callFirst("/1/events", { method: "HEAD" })
    expect([head.status, await head.text()]).toEqual([200, ""])
  })

  it("ends soon after the key's revocation, and at once at the shutdown", async () => {
    const key = await makeKey(fixture.client, fixture.namespace, "viewer", { name: "short-lived" })
    const revoked = await follow("", { key })
    const others = await follow("", { call: callSecond })
    await deleteKey(fixture.client, { namespace: fixture.namespace, name: "short-lived" })
    await eventually(() => expect(revoked.hasEnded).toBe(true))
    expect(others.hasEnded).toBe(false)
    const third = await startReplica()
    const reader = await follow("", { call: caller(() => third, fixture) })
    third.shutdown.abort()
    await eventually(() => expect(reader.hasEnded).toBe(true))
    await third.close()
  })

  it("rejects more streams of one principal than allowed with 429, and accepts one after another has ended", async () => {
    const strict = await startReplica({ settings: { followersPerPrincipal: 2 } })
    const call = caller(() => strict, fixture)
    const [first] = [await follow("", { call }), await follow("", { call })]
    const third = await call("/1/events", { key: fixture.keys.viewer })
    expect([third.status, third.headers.get("retry-after")]).toEqual([429, "10"])
    expect((await problemIn(third)).detail).toContain("too many streams")
    await follow("", { call, key: fixture.keys.admin })
    await first?.close()
    await eventually(() => follow("", { call }))
    await strict.close()
  })
})
