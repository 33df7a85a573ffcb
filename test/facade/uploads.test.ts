import { createHash, randomBytes } from "node:crypto"
import { readdir, utimes } from "node:fs/promises"
import { connect } from "node:net"
import { join } from "node:path"
import { fetch } from "undici"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { removeUnusedUploads, UNUSED_SECONDS } from "../../src/api/resources/uploads/retention.ts"
import { nameOfUpload, UPLOADS_FOLDER } from "../../src/api/uploads/store.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { CRON_JOBS, JOB_ARRAYS, JOBS } from "../../src/core/resources.ts"
import { testNamespace } from "../control-plane.ts"
import { makeKey } from "../harness/api-keys.ts"
import { BASE_DOMAIN, caller, created, problemIn, recordIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { applyJob, makeProject, projectFixture, removeJob } from "../harness/facade-project.ts"
import { silentLogger } from "../harness/silent-logger.ts"

/** Uploads: by hash, in a project, up to its limits, as long as a job needs them. */
const fixture = projectFixture("facade-uploads")
const otherProject = `p-${randomBytes(4).toString("hex")}`
const elsewhere = testNamespace("facade-uploads-else")
let replica: Replica
let otherKey = ""
const call = caller(() => replica, fixture)
const fromElsewhere = { host: `${otherProject}.${BASE_DOMAIN}` }

beforeAll(async () => {
  replica = await startReplica({ settings: { projectLimits: { uploadMib: 1, uploadsMib: 20 } } })
  await makeProject(fixture.client, otherProject, elsewhere)
  otherKey = await makeKey(fixture.client, elsewhere, "admin")
})
afterAll(() => replica.close())

const sha256Of = (data: Uint8Array): string => createHash("sha256").update(data).digest("hex")
const GZIP = { method: "PUT", type: "application/gzip" }
const put = (body: Uint8Array, sha256 = sha256Of(body), more: object = {}) =>
  call(`/1/uploads/${sha256}`, { ...GZIP, body, ...more })

async function uploaded(bytes = 100): Promise<string> {
  const body = randomBytes(bytes)
  expect((await put(body)).status).toBe(201)
  return sha256Of(body)
}

/** Returns the files of uploads, whatever their state. */
async function filesOf(sha256: string): Promise<string[]> {
  const names = await readdir(join(replica.folder, UPLOADS_FOLDER)).catch(() => [])
  return names.filter((name) => name.includes(sha256))
}

const statusOf = async (sha256: string, more: object = {}) => (await call(`/1/uploads/${sha256}`, more)).status

describe("PUT /uploads/{sha256}", () => {
  it("stores a body, and answers 200 when it is there already", async () => {
    const body = randomBytes(300_000)
    const first = await put(body)
    expect(first.status).toBe(201)
    expect(await first.json()).toMatchObject({ sha256: sha256Of(body), bytes: 300_000 })
    expect((await put(body)).status).toBe(200)
    expect(await statusOf(sha256Of(body), { method: "HEAD" })).toBe(200)
    expect(await filesOf(sha256Of(body))).toHaveLength(1)
  })

  it("takes the same body several times at once", async () => {
    const body = randomBytes(900_000)
    const responses = await Promise.all([1, 2, 3].map(() => put(body)))
    expect(responses.every(({ ok }) => ok)).toBe(true)
    expect(await filesOf(sha256Of(body))).toHaveLength(1)
  })

  it("rejects a body with another hash, names both, and stores nothing", async () => {
    const sha256 = "0".repeat(64)
    const problem = await problemIn(await put(Buffer.from("other"), sha256))
    expect(problem.status).toBe(400)
    expect(problem.errors).toEqual([
      { pointer: "", detail: `the SHA-256 of the body is ${sha256Of(Buffer.from("other"))}, not ${sha256}` },
    ])
    expect(await filesOf(sha256)).toEqual([])
    expect(await statusOf(sha256)).toBe(404)
  })

  it.each([
    ["a hash in upper case", "A".repeat(64)],
    ["a short hash", "abc"],
    ["a path", "..%2f..%2fetc%2fpasswd"],
  ])("rejects %s", async (_what, sha256) => {
    const problem = await problemIn(await put(Buffer.from("x"), sha256))
    expect(problem.status).toBe(400)
    expect(problem.errors[0]?.detail).toMatch(/^sha256: .*64 digits/)
  })

  it("rejects another media type", async () => {
    const response = await put(Buffer.from("x"), undefined, { type: "text/plain" })
    expect(response.headers.get("accept-post")).toBe("application/gzip")
    expect((await problemIn(response)).status).toBe(415)
  })

  it("rejects a body without a size", async () => {
    async function* pieces() {
      yield Buffer.from("x")
    }
    const sha256 = sha256Of(Buffer.from("x"))
    const response = await fetch(`http://127.0.0.1:${replica.port}/projects/${fixture.project}/1/uploads/${sha256}`, {
      method: "PUT",
      headers: { "X-Service-Api-Key": fixture.keys.developer, "Content-Type": "application/gzip" },
      body: ReadableStream.from(pieces()),
      duplex: "half",
    })
    expect((await problemIn(response)).detail).toContain("Content-Length")
  })

  it("rejects a body over the limit", async () => {
    const problem = await problemIn(await put(randomBytes(1024 * 1024 + 1)))
    expect(problem).toMatchObject({ status: 413, detail: expect.stringContaining("the limit is 1 MiB") })
  })

  it("leaves nothing of an upload that breaks off", async () => {
    const body = randomBytes(500_000)
    const sha256 = sha256Of(body)
    const socket = connect(replica.port, "127.0.0.1")
    socket.write(
      [
        `PUT /1/uploads/${sha256} HTTP/1.1`,
        `Host: ${fixture.project}.${BASE_DOMAIN}`,
        `X-Service-Api-Key: ${fixture.keys.developer}`,
        "Content-Type: application/gzip",
        `Content-Length: ${body.byteLength}`,
        "",
        "",
      ].join("\r\n"),
    )
    socket.write(body.subarray(0, 250_000))
    await eventually(async () => expect(await filesOf(sha256)).toHaveLength(1))
    expect(await statusOf(sha256)).toBe(404)
    socket.destroy()
    await eventually(async () => expect(await filesOf(sha256)).toEqual([]))
    expect((await put(body)).status).toBe(201)
  })

  it("shows nothing of the content in the logs", async () => {
    const secret = `token-${randomBytes(16).toString("hex")}`
    expect((await put(Buffer.from(secret))).status).toBe(201)
    expect((await put(Buffer.from(secret), "0".repeat(64))).status).toBe(400)
    expect(replica.logged()).not.toContain(secret)
  })
})

describe("the upload of another project", () => {
  it("is not there, and no job can refer to it", async () => {
    const sha256 = await uploaded()
    const other = { ...fromElsewhere, key: otherKey }
    expect(await statusOf(sha256)).toBe(200)
    expect(await statusOf(sha256, other)).toBe(404)
    expect(await statusOf(sha256, { ...other, method: "HEAD" })).toBe(404)
    expect(await statusOf(sha256, { key: otherKey })).toBe(401)
    const response = await call("/1/jobs", { ...other, body: { image: "a", workdir: { sha256 } } })
    expect((await problemIn(response)).errors).toMatchObject([{ pointer: "/workdir/sha256" }])
  })
})

describe("a job with a workdir", () => {
  it("is created with an upload of its project, and its record shows the folder", async () => {
    const sha256 = await uploaded()
    const { job_id } = await created(await call("/1/jobs", { body: { image: "a", workdir: { sha256 } } }))
    expect((await recordIn(await call(`/1/jobs/${job_id}`))).workdir).toEqual({ sha256, path: "/workspace" })
    const { name } = await created(
      await call("/1/jobs", { body: { image: "a", workdir: { sha256, path: "/srv/app" } } }),
    )
    const job = await fixture.client.get(JOBS, { namespace: fixture.namespace, name })
    expect(job.spec.workdir).toEqual({ sha256, path: "/srv/app" })
  })

  it("is rejected without its upload, but a plan needs none", async () => {
    const sha256 = randomBytes(32).toString("hex")
    const body = { image: "a", workdir: { sha256 } }
    const problem = await problemIn(await call("/1/jobs", { body }))
    expect(problem.status).toBe(400)
    const detail = `workdir.sha256: the project has no upload ${sha256}; upload it first: PUT /1/uploads/${sha256}`
    expect(problem.errors).toEqual([{ pointer: "/workdir/sha256", detail }])
    expect((await call("/1/jobs?dry_run=true", { body })).status).toBe(200)
  })

  it("keeps its workdir", async () => {
    const sha256 = await uploaded()
    const { name } = await created(await call("/1/jobs", { body: { image: "a", workdir: { sha256 } } }))
    const ref = { namespace: fixture.namespace, name }
    const change = (workdir: unknown) => fixture.client.patch(JOBS, ref, { merge: { spec: { workdir } } })
    await expect(change({ path: "/other" })).rejects.toThrow("workdir is immutable")
    await expect(change(null)).rejects.toThrow("workdir is immutable")
  })

  it("is rejected as the definition of a cronjob or an array without its upload", async () => {
    const sha256 = randomBytes(32).toString("hex")
    const job_definition = { image: "a", workdir: { sha256 } }
    const refused = [{ pointer: "/job_definition/workdir/sha256" }]
    const cronjob = { name: `c-${sha256.slice(0, 8)}`, cron_spec: "@daily" }
    const response = await call("/1/cronjobs", { body: { ...cronjob, job_definition } })
    expect((await problemIn(response)).errors).toMatchObject(refused)
    expect((await call("/1/cronjobs", { body: { ...cronjob, job_definition: { image: "a" } } })).status).toBe(201)
    const change = (definition: object) =>
      call(`/1/cronjobs/${cronjob.name}`, { method: "PATCH", body: { job_definition: definition } })
    expect((await problemIn(await change(job_definition))).errors).toMatchObject(refused)
    expect((await change({ image: "a", workdir: { sha256: await uploaded() } })).status).toBe(200)
    const array = (definition: object) =>
      call("/1/arrays", { body: { name: `a-${sha256.slice(0, 8)}`, size: 2, job_definition: definition } })
    expect((await problemIn(await array(job_definition))).errors).toMatchObject(refused)
    expect((await array({ image: "a", workdir: { sha256: await uploaded() } })).status).toBe(201)
  })
})

describe("unused uploads", () => {
  const age = async (sha256: string): Promise<void> => {
    const time = Date.now() / 1000 - UNUSED_SECONDS - 1
    const name = nameOfUpload({ namespace: fixture.namespace, sha256 })
    await utimes(join(replica.folder, UPLOADS_FOLDER, name), time, time)
  }
  const collect = () =>
    removeUnusedUploads({
      client: fixture.client,
      caches: { jobs: replica.jobs, cronJobs: replica.cronJobs, jobArrays: replica.jobArrays },
      store: replica.uploadStore,
      clock: systemClock,
      logger: silentLogger,
    })

  it("are removed after an hour, and not before", async () => {
    const [old, young] = [await uploaded(), await uploaded()]
    await age(old)
    await collect()
    expect(await filesOf(old)).toEqual([])
    expect(await filesOf(young)).toHaveLength(1)
  })

  it("are kept for another hour when a client asks for them", async () => {
    const sha256 = await uploaded()
    await age(sha256)
    expect(await statusOf(sha256, { method: "HEAD" })).toBe(200)
    await collect()
    expect(await statusOf(sha256)).toBe(200)
  })

  it("are not those of a job, a cronjob or an array, however it was created, until these are deleted", async () => {
    const uploads = [await uploaded(), await uploaded(), await uploaded()] as const
    const [ofJob, ofCronJob, ofArray] = uploads
    const job = await applyJob(fixture, "uses-upload", { workdir: { sha256: ofJob } })
    const jobDefinition = { image: "a", workdir: { sha256: ofCronJob } }
    const name = "uses-upload"
    const base = { apiVersion: job.apiVersion, metadata: { name, namespace: fixture.namespace } }
    const cronJob = { ...base, kind: "CronJob", spec: { schedule: "@daily", jobDefinition } }
    await fixture.client.create(CRON_JOBS, cronJob as never)
    const definition = { image: "a", workdir: { sha256: ofArray } }
    const array = { ...base, kind: "JobArray", spec: { size: 1, jobDefinition: definition } }
    await fixture.client.create(JOB_ARRAYS, array as never)
    for (const sha256 of uploads) await age(sha256)
    await collect()
    for (const sha256 of uploads) expect(await filesOf(sha256)).toHaveLength(1)

    await removeJob(fixture, { namespace: fixture.namespace, name })
    await fixture.client.delete(CRON_JOBS, { namespace: fixture.namespace, name })
    await fixture.client.delete(JOB_ARRAYS, { namespace: fixture.namespace, name })
    await eventually(() => {
      const { jobs, cronJobs, jobArrays } = replica
      for (const { store } of [jobs, cronJobs, jobArrays]) expect(store.get(job.metadata)).toBeUndefined()
    })
    await collect()
    for (const sha256 of uploads) expect(await filesOf(sha256)).toEqual([])
  })
})

describe("the limit of a project's uploads", () => {
  it("rejects another upload, counts each as at least one MiB, and not those of other projects", async () => {
    for (let status = 201; status === 201; ) {
      const response = await put(randomBytes(10))
      status = response.status
      if (status === 201) continue
      const problem = await problemIn(response)
      expect(problem).toMatchObject({ status: 429, detail: expect.stringContaining("the limit is 20 MiB") })
    }
    const there = (await readdir(join(replica.folder, UPLOADS_FOLDER))).filter((one) =>
      one.startsWith(`${fixture.namespace}.`),
    )
    expect(there).toHaveLength(20)
    const body = randomBytes(10)
    expect((await put(body, undefined, { ...fromElsewhere, key: otherKey })).status).toBe(201)
  })
})
