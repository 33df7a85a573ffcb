import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { afterAll, beforeAll, expect, it } from "vitest"
import { isTerminal } from "../../src/apis/job.ts"
import { API_KEYS } from "../../src/identity/authenticate.ts"
import { makeKey, type Replica, setStatus, startReplica, testWorld } from "../facade/harness.ts"
import { pythonEnvironment } from "../python-environment.ts"

/**
 * The REST API held against its own OpenAPI document by Schemathesis, with every check that it has. `npm test` has a
 * small budget and always the same seed; `npm run test:schemathesis` looks further, each time elsewhere, and prints the
 * seed of what it finds.
 */
const EXAMPLES = process.env["SCHEMATHESIS_EXAMPLES"] ?? "10"
const SEED = process.env["SCHEMATHESIS_SEED"] ?? "1"

const KEY_NAME = "schemathesis"

/** What the whole run may take, milliseconds: far more than it does. */
const DEADLINE = 3_600_000

const world = testWorld("schemathesis")
let replica: Replica
let programs: string
let key: string
let keyId: string
let folder: string
const stop = new AbortController()
let ending: Promise<void>

beforeAll(async () => {
  programs = await pythonEnvironment("schemathesis", join(import.meta.dirname, "requirements.txt"))
  folder = await mkdtemp(join(tmpdir(), "berth-schemathesis-"))
  replica = await startReplica({
    settings: {
      defaultProject: world.project,
      requestsPerMinute: 0,
      discoveriesPerMinute: 0,
      clouds: ["aws", "gcp", "azure"],
    },
  })
  key = await makeKey(world.client, world.namespace, "admin", { name: KEY_NAME })
  keyId = (await world.client.get(API_KEYS, { namespace: world.namespace, name: KEY_NAME })).metadata.uid
  ending = endJobs()
}, 600_000)
afterAll(async () => {
  stop.abort()
  await ending
  await replica.close()
  await rm(folder, { recursive: true, force: true })
})

/** Lets jobs come to an end like jobs do, until the tests are over: what waits for an end of theirs is answered. */
async function endJobs(): Promise<void> {
  while (!stop.signal.aborted) {
    const jobs = replica.jobs.store.list().filter(({ metadata }) => metadata.namespace === world.namespace)
    for (const { metadata } of jobs.filter(({ status }) => !isTerminal(status?.phase)))
      await setStatus(world, metadata.name, { phase: "succeeded" })
    await delay(200)
  }
}

/** The groups of endpoints that API keys are for; each is a run of its own, in which every POST may begin a scenario. */
const TAGS = ["jobs", "cronjobs", "keys", "connections", "resources"]

/** Groups in which nothing is made. */
const STATELESS = ["resources"]

it("has no endpoint outside the groups that are looked at", async () => {
  const document = (await (await fetch(`http://127.0.0.1:${replica.port}/1/openapi.json`)).json()) as OpenApi
  const operations = Object.values(document.paths).flatMap((methods) => Object.values(methods))
  const forKeys = operations.filter(({ security = document.security }) => security.some((one) => "apiKey" in one))
  expect([...new Set(forKeys.flatMap(({ tags }) => tags))].sort()).toEqual(TAGS.toSorted())
})

interface OpenApi {
  security: object[]
  paths: Record<string, Record<string, { tags: string[]; security?: object[] }>>
}

it.each(TAGS)("does with %s all that the document says, and nothing else", { timeout: DEADLINE }, async (tag) => {
  const address = `http://127.0.0.1:${replica.port}/1`
  const budget = ["--max-examples", EXAMPLES, ...(SEED === "" ? [] : ["--seed", SEED])]
  const phases = ["examples", "coverage", "fuzzing", ...(STATELESS.includes(tag) ? [] : ["stateful"])]
  const { code, said } = await schemathesis([
    ...["--config-file", join(import.meta.dirname, "schemathesis.toml"), "run", `${address}/openapi.json`],
    ...["--url", address, "--include-tag", tag, "--phases", phases.join(","), ...budget, "--no-color"],
  ])
  expect(code, said).toBe(0)
  expect(said).toMatch(/No issues found/)
})

async function schemathesis(args: readonly string[]): Promise<{ code: number | null; said: string }> {
  const child = spawn(join(programs, "schemathesis"), args, {
    cwd: folder,
    stdio: ["ignore", "pipe", "inherit"],
    env: {
      PATH: process.env["PATH"],
      PYTHONDONTWRITEBYTECODE: "1",
      SCHEMATHESIS_HOOKS: join(import.meta.dirname, "hooks.py"),
      BERTH_KEY: key,
      BERTH_KEY_ID: keyId,
      BERTH_KEY_NAME: KEY_NAME,
      BERTH_PROJECT: world.project,
      BERTH_ORGANIZATION: world.organization,
    },
  })
  let said = ""
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    said += text
  })
  const [code] = (await once(child, "close")) as [number | null]
  return { code, said }
}
