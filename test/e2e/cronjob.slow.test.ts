import { mkdir, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { CronJobStatus, StoredCronJob } from "../../src/core/apis/cronjob.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { kubeconfigPath, kubectl } from "../control-plane.ts"
import { processRuntime } from "../harness/container-runtime.ts"
import { eventually } from "../harness/eventually.ts"
import { Installation } from "../harness/installation.ts"

let berth: Installation

beforeAll(async () => {
  berth = await Installation.create({ name: "cronjob", kubeconfig: kubeconfigPath(), runtime: processRuntime })
  await berth.startOperator()
})
afterAll(() => berth?.close())

/** Timeout far above a minute, after which every schedule here has fired, plus a job's run. */
const TICK_SECONDS = 180

const EVERY_MINUTE = "* * * * *"
const YEARLY = "0 0 1 1 *"
const NEXT_YEAR = /^\d{4}-01-01T00:00:00Z$/

function inProject(args: string[], input?: string): Promise<string> {
  return kubectl([...args, "-n", berth.namespace], input)
}

async function cronJob(name: string): Promise<StoredCronJob> {
  return JSON.parse(await inProject(["get", "bcj", name, "-o", "json"])) as StoredCronJob
}

/** Returns the status after the controller has observed the current spec. */
function seen(name: string): Promise<CronJobStatus> {
  return eventually(async () => {
    const { metadata, status } = await cronJob(name)
    expect(status?.observedGeneration).toBe(metadata.generation)
    return status as CronJobStatus
  })
}

/** Returns the jobs of a CronJob, by the prefix of their names. */
function jobsOf(name: string): StoredJob[] {
  return berth.jobs.store.list().filter(({ metadata }) => new RegExp(`^${name}-\\d{8}t\\d{6}z$`).test(metadata.name))
}

/** Returns the first job of a CronJob once it is in this phase. */
function firstJob(name: string, phase: "running" | "succeeded"): Promise<StoredJob> {
  return eventually(() => {
    const [job] = jobsOf(name)
    if (job?.status?.phase !== phase) throw new Error(`${name}: ${job?.metadata.name} ${job?.status?.phase}`)
    return job
  }, TICK_SECONDS)
}

function manifest(name: string, spec: Partial<StoredCronJob["spec"]>, script = `echo ${name}`): string {
  const jobDefinition = { image: "none", command: ["sh", "-c"], args: [script], cloud: ["local"] }
  const labels = { "gitops/app": name }
  return JSON.stringify({
    apiVersion: "berth.dev/v1alpha1",
    kind: "CronJob",
    metadata: { name, labels },
    spec: { schedule: EVERY_MINUTE, jobDefinition, ...spec },
  })
}

async function rest(
  path: string,
  method: string,
  body?: object,
): Promise<[status: number, body: Record<string, unknown>]> {
  const headers = { "Content-Type": "application/json" }
  const init = body === undefined ? { method } : { method, headers, body: JSON.stringify(body) }
  const response = await berth.fetch(path, init)
  const text = await response.text()
  return [response.status, text === "" ? {} : (JSON.parse(text) as Record<string, unknown>)]
}

/** These tests run concurrently, so they wait for the same tick. */
describe.concurrent("a user of cronjobs", { timeout: 300_000 }, () => {
  it("creates, fires, changes, pauses and resumes a cronjob by REST, and deletes it with its running job", async ({
    expect,
  }) => {
    const definition = { image: "none", command: ["sh", "-c"], args: ["echo began; sleep 600"], cloud: "local" }
    const creation = { name: "by-rest", cron_spec: EVERY_MINUTE, job_definition: definition }
    expect((await rest("/cronjobs", "POST", creation))[0]).toBe(201)
    expect((await rest("/cronjobs", "POST", creation))[0]).toBe(409)
    const job = await firstJob("by-rest", "running")
    // The façade's cache may be ahead of this test's, or behind.
    await eventually(async () => {
      const [, fired] = await rest("/cronjobs/by-rest", "GET")
      expect(fired).toMatchObject({ is_active: true, last_triggered_at: expect.stringMatching(/:00Z$/) })
      expect((await rest(`/jobs/${job.metadata.name}`, "GET"))[1]).toMatchObject({ status: "running", region: [] })
    })

    const changed = await rest("/cronjobs/by-rest", "PATCH", { cron_spec: YEARLY })
    expect(changed).toMatchObject([200, { cron_spec: YEARLY, job_definition: { cloud: "local" } }])
    expect((await seen("by-rest")).nextTriggerTime).toMatch(NEXT_YEAR)
    expect(await rest("/cronjobs/by-rest", "PATCH", { is_active: false })).toMatchObject([200, { is_active: false }])
    expect((await seen("by-rest")).nextTriggerTime).toBeUndefined()
    await rest("/cronjobs/by-rest", "PATCH", { is_active: true })
    expect((await seen("by-rest")).nextTriggerTime).toMatch(NEXT_YEAR)

    expect((await rest("/cronjobs/by-rest?cascade=true", "DELETE"))[0]).toBe(204)
    await eventually(async () => expect((await rest("/cronjobs/by-rest", "GET"))[0]).toBe(404))
    await eventually(async () => {
      expect((await rest(`/jobs/${job.metadata.name}`, "GET"))[1]).toMatchObject({ status: "cancelled" })
    })
  })

  it("creates, fires, changes and pauses a cronjob by kubectl, and deletes it without its jobs", async ({ expect }) => {
    const apply = (spec: Partial<StoredCronJob["spec"]>): Promise<string> =>
      inProject(["apply", "--server-side", "-f", "-"], manifest("by-kubectl", spec, "echo began; sleep 600"))
    expect(await apply({})).toBe("cronjob.berth.dev/by-kubectl serverside-applied\n")
    await inProject(["wait", "--for=condition=Ready", "bcj/by-kubectl", "--timeout=100s"])
    const job = await firstJob("by-kubectl", "running")
    // The job is created first, then recorded in the status, then reported by an event.
    await eventually(async () => {
      const [head = "", row = ""] = (await inProject(["get", "bcj", "by-kubectl"])).split("\n")
      expect(head.split(/ +/)).toEqual(["NAME", "SCHEDULE", "ACTIVE", "LAST", "NEXT", "STATE", "AGE"])
      expect(row).toMatch(/^by-kubectl +\* \* \* \* \* +true +\d+\w+ +\d{4}-\S+:00Z +Scheduled +\d+/)
      expect(await inProject(["describe", "bcj", "by-kubectl"])).toContain(`created Job ${job.metadata.name}`)
    })

    await apply({ schedule: YEARLY })
    expect((await seen("by-kubectl")).nextTriggerTime).toMatch(NEXT_YEAR)
    await inProject(["patch", "bcj", "by-kubectl", "--type=merge", "-p", '{"spec":{"active":false}}'])
    expect((await seen("by-kubectl")).conditions).toMatchObject([{ type: "Ready", status: "True", reason: "Paused" }])
    await inProject(["patch", "bcj", "by-kubectl", "--type=merge", "-p", '{"spec":{"schedule":"0 17-9 * * *"}}'])
    expect((await seen("by-kubectl")).conditions).toMatchObject([
      { type: "Ready", status: "False", reason: "InvalidSchedule" },
      { type: "Stalled", status: "True" },
    ])

    await inProject(["delete", "bcj", "by-kubectl", "--timeout=100s"])
    const { metadata } = job
    expect(berth.job(metadata.name)).toMatchObject({ spec: { cancelled: false }, status: { phase: "running" } })
    await inProject(["patch", "bj", metadata.name, "--type=merge", "-p", '{"spec":{"cancelled":true}}'])
    await berth.reached("cancelled", metadata.name)
  })

  it("applies a cronjob by GitOps: a second apply changes nothing; then it is changed, paused and pruned", async ({
    expect,
  }) => {
    const folder = join(berth.folder, "repository")
    await mkdir(folder)
    const commit = async (files: Record<string, string>): Promise<void> => {
      for (const [file, content] of Object.entries(files)) await writeFile(join(folder, file), content)
      const resources = Object.keys(files).map((file) => `- ${file}\n`)
      await writeFile(join(folder, "kustomization.yaml"), `resources:\n${resources.join("")}`)
    }
    const sync = (): Promise<string> =>
      inProject([
        ...["apply", "-k", folder, "--prune", "-l", "gitops/app in (by-gitops,stays)"],
        "--prune-allowlist=berth.dev/v1alpha1/CronJob",
      ])
    const stays = manifest("stays", { schedule: YEARLY })
    await commit({ "stays.json": stays, "by-gitops.json": manifest("by-gitops", {}) })
    expect((await sync()).split("\n").sort()).toEqual([
      "",
      "cronjob.berth.dev/by-gitops created",
      "cronjob.berth.dev/stays created",
    ])
    const job = await firstJob("by-gitops", "succeeded")
    expect(await berth.log(job.metadata.name)).toBe("by-gitops\n")

    const { generation } = (await cronJob("by-gitops")).metadata
    const fired = jobsOf("by-gitops").length
    expect(await sync()).toContain("cronjob.berth.dev/by-gitops unchanged")
    expect((await cronJob("by-gitops")).metadata.generation).toBe(generation)
    expect(jobsOf("by-gitops").length - fired).toBeLessThanOrEqual(1)

    await commit({ "stays.json": stays, "by-gitops.json": manifest("by-gitops", { schedule: YEARLY }) })
    expect(await sync()).toContain("cronjob.berth.dev/by-gitops configured")
    expect((await seen("by-gitops")).nextTriggerTime).toMatch(NEXT_YEAR)
    await commit({ "stays.json": stays, "by-gitops.json": manifest("by-gitops", { schedule: YEARLY, active: false }) })
    await sync()
    expect((await seen("by-gitops")).nextTriggerTime).toBeUndefined()

    await commit({ "stays.json": stays })
    expect(await sync()).toContain("cronjob.berth.dev/by-gitops pruned")
    expect(await inProject(["get", "bcj", "-o", "name"])).not.toContain("by-gitops")
    expect(await inProject(["get", "bcj", "stays", "-o", "name"])).toBe("cronjob.berth.dev/stays\n")
    expect(berth.job(job.metadata.name).status?.phase).toBe("succeeded")
  })
})
