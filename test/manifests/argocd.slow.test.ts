import { execFile } from "node:child_process"
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { loadAll } from "js-yaml"
import { beforeAll, describe, expect, inject, it } from "vitest"
import type { StoredApiKey } from "../../src/core/apis/apikey.ts"
import type { StoredConnection } from "../../src/core/apis/connection.ts"
import { CronJobReason, type StoredCronJob } from "../../src/core/apis/cronjob.ts"
import type { JobStatus, StoredJob } from "../../src/core/apis/job.ts"
import type { StoredJobArray } from "../../src/core/apis/jobarray.ts"
import { KINDS } from "../../src/core/apis/kinds.ts"
import type { StoredProject } from "../../src/core/apis/project.ts"
import { nextStatus as keyStatus } from "../../src/operator/apikey/decide.ts"
import { buildConditions as arrayConditions, type Verdict } from "../../src/operator/array/status.ts"
import { nextStatus as connectionStatus } from "../../src/operator/connection/status.ts"
import { nextStatus as cronJobStatus } from "../../src/operator/cronjob/status.ts"
import { buildConditions } from "../../src/operator/job/conditions.ts"
import { nextStatus as projectStatus } from "../../src/operator/project/decide.ts"
import { goProgram } from "../go-program.ts"
import { missingTool, needing } from "../needing.ts"
import { LUA } from "../tools.ts"

const FOLDER = join(import.meta.dirname, "..", "..", "manifests", "gitops", "argocd")

const argocd = needing(missingTool("glua"))

const NOW = new Date("2026-01-01T00:00:00Z")
const metadata = { name: "x", namespace: "n", uid: "u", generation: 1, resourceVersion: "1", creationTimestamp: "" }

function job(status: JobStatus, more: object = {}): object {
  const object = { kind: "Job", metadata, spec: { image: "a" } } as StoredJob
  const conditions = buildConditions(object, { message: "why", ...status }, {}, NOW)
  return { ...object, status: { ...status, conditions, observedGeneration: 1 }, ...more }
}

function cronJob(reason: CronJobReason, spec: object = {}): object {
  const object = { kind: "CronJob", metadata, spec: { schedule: "* * * * *", ...spec } } as StoredCronJob
  return { ...object, status: cronJobStatus(object, { cause: { reason, message: "why" } }, NOW) }
}

function jobArray(verdict: Pick<Verdict, "phase" | "reason">): object {
  const object = { kind: "JobArray", metadata, spec: { size: 2, jobDefinition: { image: "a" } } } as StoredJobArray
  const conditions = arrayConditions(object, { message: "why", isOver: false, ...verdict }, NOW)
  return { ...object, status: { phase: verdict.phase, conditions, observedGeneration: 1 } }
}

function key(is: "binding" | "bound" | "expired"): object {
  const object = { kind: "ApiKey", metadata, spec: { role: "viewer" } } as StoredApiKey
  return { ...object, status: keyStatus(object, { is }, NOW) }
}

function connection(situation: Parameters<typeof connectionStatus>[1]): object {
  const object = { kind: "Connection", metadata, spec: { type: "aws" } } as StoredConnection
  return { ...object, status: connectionStatus(object, situation, { regions: [], now: NOW }) }
}

function project(situation: Parameters<typeof projectStatus>[1], more: object = {}): object {
  const object = { kind: "Project", metadata: { ...metadata, ...more }, spec: { organization: "o" } } as StoredProject
  return { ...object, status: projectStatus(object, situation, NOW) }
}

const DELETED = { deletionTimestamp: "2026-01-01T00:00:00Z" }

const CASES: [what: string, object: object, health: string][] = [
  ["an object without a status", { kind: "Job", metadata, spec: {} }, "Progressing"],
  [
    "one that was changed since",
    { ...job({ phase: "running" }), metadata: { ...metadata, generation: 2 } },
    "Progressing",
  ],
  ["a job that waits", job({ phase: "queued", reason: "NoConnection", message: "none" }), "Progressing"],
  ["a job that runs", job({ phase: "running" }), "Healthy"],
  ["a job that went well", job({ phase: "succeeded", reason: "Succeeded" }), "Healthy"],
  ["a job that failed", job({ phase: "failed", reason: "ContainerFailed" }), "Degraded"],
  ["a job that a user cancelled", job({ phase: "cancelled", reason: "Cancelled" }), "Suspended"],
  ["a job that is being deleted", job({ phase: "running" }, { metadata: { ...metadata, ...DELETED } }), "Progressing"],
  ["a schedule in force", cronJob(CronJobReason.Scheduled), "Healthy"],
  ["a paused schedule", cronJob(CronJobReason.Paused, { active: false }), "Suspended"],
  ["a schedule that is none", cronJob(CronJobReason.InvalidSchedule), "Degraded"],
  ["an array that has no VM yet", jobArray({ phase: "queued", reason: "Queued" }), "Progressing"],
  ["an array whose jobs run", jobArray({ phase: "running", reason: "Running" }), "Healthy"],
  ["an array that waits at a limit", jobArray({ phase: "running", reason: "ProjectLimit" }), "Progressing"],
  ["an array that went well", jobArray({ phase: "succeeded", reason: "Succeeded" }), "Healthy"],
  ["an array with failed jobs", jobArray({ phase: "failed", reason: "IndexesFailed" }), "Degraded"],
  ["an array that a user cancelled", jobArray({ phase: "cancelled", reason: "Cancelled" }), "Suspended"],
  ["a key that is being bound", key("binding"), "Progressing"],
  ["a key that works", key("bound"), "Healthy"],
  ["an expired key", key("expired"), "Degraded"],
  ["credentials that are being asked about", connection({ is: "verifying" }), "Progressing"],
  [
    "credentials that External Secrets has not brought yet",
    connection({ is: "unusable", why: { reason: "SecretNotFound", message: "no" } }),
    "Progressing",
  ],
  ["credentials that are refused", connection({ is: "refused", version: "1", message: "no" }), "Degraded"],
  ["a project that has its namespace", project({ is: "ready" }), "Healthy"],
  ["a project whose deletion its jobs hold up", project({ is: "blocked", jobs: 2 }, DELETED), "Degraded"],
]

argocd.describe("health scripts for Argo CD", () => {
  let told: { status: string; message: string }[]

  beforeAll(async () => {
    const lua = await goProgram(LUA)
    const folder = await mkdtemp(join(tmpdir(), "berth-lua-"))
    const script = await readFile(join(FOLDER, "health.lua"), "utf8")
    const runs = CASES.map(
      ([, object]) =>
        `obj = ${literal(object)}\nlocal health = (function()\n${script}\nend)()\nprint(health.status, health.message)`,
    )
    await writeFile(join(folder, "all.lua"), runs.map((run) => `do\n${run}\nend`).join("\n"))
    const { stdout } = await promisify(execFile)(lua, [join(folder, "all.lua")])
    await rm(folder, { recursive: true })
    told = stdout.split("\n").map((line) => {
      const [status = "", message = ""] = line.split("\t")
      return { status, message }
    })
  })

  it.each(CASES.map(([what, , health], i) => [what, health, i] as const))("reports %s as %s", (_what, health, i) => {
    expect(told[i]).toEqual({ status: health, message: expect.stringMatching(/./) })
  })
})

/** Returns a JSON value as Lua source. */
function literal(value: unknown): string {
  if (Array.isArray(value)) return `{${value.map(literal).join(", ")}}`
  if (typeof value !== "object" || value === null) return JSON.stringify(value)
  const fields = Object.entries(value).filter(([, field]) => field !== undefined)
  return `{${fields.map(([name, field]) => `[${JSON.stringify(name)}] = ${literal(field)}`).join(", ")}}`
}

describe("argocd-cm", () => {
  it("has the health script for each kind that a repository may contain", async () => {
    const { stdout } = await promisify(execFile)(inject("kubectlPath"), ["kustomize", FOLDER])
    const objects = loadAll(stdout) as { kind: string; data?: Record<string, string> }[]
    const { data = {} } = objects.find(({ kind }) => kind === "ConfigMap") ?? {}
    const script = await readFile(join(FOLDER, "health.lua"), "utf8")
    const kinds = KINDS.map(({ kind }) => kind).filter((kind) => kind !== "Launch" && kind !== "Statement")
    const wanted = kinds.map((kind) => [`resource.customizations.health.berth.dev_${kind}`, script])
    expect(data).toEqual(Object.fromEntries(wanted))
  })
})
