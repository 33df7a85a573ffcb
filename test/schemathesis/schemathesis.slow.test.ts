import { spawn } from "node:child_process"
import { createHash } from "node:crypto"
import { once } from "node:events"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { gzipSync } from "node:zlib"
import { afterAll, beforeAll, expect, it } from "vitest"
import { systemClock } from "../../src/core/apis/clock.ts"
import { creationKey } from "../../src/core/apis/creation-times.ts"
import { isTerminal } from "../../src/core/apis/job.ts"
import type { StoredOrganization } from "../../src/core/apis/organization.ts"
import type { StoredProject } from "../../src/core/apis/project.ts"
import { IdentityIssuer } from "../../src/core/identity/identity-tokens.ts"
import { TokenVerifier } from "../../src/core/identity/oidc.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import { API_KEYS, ORGANIZATIONS, PROJECTS } from "../../src/core/resources.ts"
import { makeKey } from "../harness/api-keys.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture, setStatus } from "../harness/facade-project.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import { AUDIENCE, type Issuer, startIssuer } from "../oidc.ts"
import { pythonEnvironment } from "../python-environment.ts"

/**
 * Schemathesis compares the REST API with its own OpenAPI document, with all its checks. `npm run test:slow` has a small budget
 * and a fixed seed. `npm run test:schemathesis` has a larger budget and a new seed each time, and prints the seed of a
 * finding.
 */
const EXAMPLES = process.env["SCHEMATHESIS_EXAMPLES"] ?? "6"
const SEED = process.env["SCHEMATHESIS_SEED"] ?? "1"

const KEY_NAME = "schemathesis"

/** Timeout of the whole run in milliseconds, far above its normal duration. */
const DEADLINE = 3_600_000

const fixture = projectFixture("schemathesis")
let replica: Replica
let programs: string
let key: string
let keyId: string
/** SHA-256 of an upload of the project. */
let upload: string
let issuer: Issuer
/** Token of a person without an organization. */
let token: string
let folder: string
const stop = new AbortController()
let ending: Promise<unknown>

beforeAll(async () => {
  programs = await pythonEnvironment("schemathesis", join(import.meta.dirname, "requirements.txt"))
  folder = await mkdtemp(join(tmpdir(), "berth-schemathesis-"))
  issuer = await startIssuer()
  token = await issuer.token({ exp: Math.floor((Date.now() + DEADLINE) / 1000) })
  const issuing = { systemNamespace: SYSTEM_NAMESPACE, issuer: "https://berth.example", clock: systemClock }
  replica = await startReplica({
    // Without an issuer, connections need a secret, which no schema can say.
    identity: new IdentityIssuer({ ...issuing, client: fixture.client }),
    tokens: new TokenVerifier({ issuers: [{ issuer: issuer.url, audience: AUDIENCE }], clock: systemClock }),
    settings: {
      defaultProject: fixture.project,
      requestsPerMinute: 0,
      discoveriesPerMinute: 0,
      // No operator runs here.
      checkSeconds: 0.1,
      clouds: ["aws", "gcp", "azure"],
    },
  })
  key = await makeKey(fixture.client, fixture.namespace, "admin", { name: KEY_NAME })
  keyId = (await fixture.client.get(API_KEYS, { namespace: fixture.namespace, name: KEY_NAME })).metadata.uid
  upload = await putUpload(gzipSync("files"))
  ending = endJobs()
}, 600_000)
afterAll(async () => {
  stop.abort()
  await ending
  await replica.close()
  await issuer.close()
  await rm(folder, { recursive: true, force: true })
})

/** Uploads a working directory. Returns its SHA-256. */
async function putUpload(archive: Buffer<ArrayBuffer>): Promise<string> {
  const sha256 = createHash("sha256").update(archive).digest("hex")
  const { status } = await fetch(`http://127.0.0.1:${replica.port}/1/uploads/${sha256}`, {
    ...{ method: "PUT", body: archive },
    headers: { "X-Service-Api-Key": key, "Content-Type": "application/gzip" },
  })
  expect(status).toBe(201)
  return sha256
}

/** Ends jobs like a controller does, because some requests wait for a job's end. Runs until the tests are over. */
async function endJobs(): Promise<void> {
  while (!stop.signal.aborted) {
    const jobs = replica.jobs.store.list().filter(({ metadata }) => metadata.namespace === fixture.namespace)
    for (const { metadata } of jobs.filter(({ status }) => !isTerminal(status?.phase)))
      await setStatus(fixture, metadata.name, { phase: "succeeded" })
    await delay(200)
  }
}

/** Number of the person's organizations that stay: the limit of owned organizations is not much higher. */
const ORGANIZATIONS_KEPT = 30

/**
 * Writes the namespaces of projects without creating them, and deletes old organizations; in the end all of them. Only the
 * group `accounts` makes any, and each look lists all objects of two kinds.
 */
async function maintainAccounts(over: AbortSignal): Promise<void> {
  const { client } = fixture
  const madeBy = async (): Promise<StoredOrganization[]> =>
    (await client.list(ORGANIZATIONS)).items
      .filter(({ spec }) => spec.members?.some(({ userId }) => userId.startsWith(`${issuer.url}#`)))
      .sort((a, b) => (creationKey(a) > creationKey(b) ? -1 : 1))
  const projectsOf = async (organizations: StoredOrganization[]): Promise<StoredProject[]> => {
    const names = organizations.map(({ metadata }) => metadata.name)
    return (await client.list(PROJECTS)).items.filter(({ spec }) => names.includes(spec.organization))
  }
  const remove = async (organizations: StoredOrganization[]): Promise<void> => {
    // The run deletes some itself.
    for (const { metadata } of await projectsOf(organizations)) await ifFound(client.delete(PROJECTS, metadata))
    for (const { metadata } of organizations) await ifFound(client.delete(ORGANIZATIONS, metadata))
  }
  while (!over.aborted) {
    const organizations = await madeBy()
    for (const { metadata, status } of await projectsOf(organizations))
      if (status?.namespace === undefined)
        await client.applyStatus(PROJECTS, {
          metadata: { name: metadata.name },
          status: { namespace: metadata.name },
        })
    await remove(organizations.slice(ORGANIZATIONS_KEPT))
    await delay(100)
  }
  await remove(await madeBy())
}

/** Groups of endpoints. In the run of a group with objects, every POST may begin a scenario. */
const TAGS = [
  ...["jobs", "cronjobs", "arrays", "webhooks", "keys", "connections"],
  ...["resources", "offers", "whoami", "costs", "accounts", "idle", "machines", "sessions"],
]

/**
 * Groups that other suites cover (test/facade): a response that does not end by itself, and a body of a media type that
 * schemathesis can't write.
 */
const ELSEWHERE = ["events", "uploads"]

/** Groups without an operation that creates objects. */
const STATELESS = ["resources", "offers", "whoami", "costs", "idle", "sessions"]

/**
 * Groups that share a run, in which each operation has its own budget of examples. Only scenarios share a budget, and
 * groups without objects have none. So one run finds the same as six, whose programs take more CPU time than their requests.
 */
const RUNS = [STATELESS, ...TAGS.filter((tag) => !STATELESS.includes(tag)).map((tag) => [tag])]

/**
 * Groups with so many combinations that only the longer run covers them: six kinds of credentials, the fields of a job,
 * the kinds of events, the roles of keys, and machines, whose creations need names of their own.
 */
const LONG = ["connections", "jobs", "cronjobs", "arrays", "webhooks", "keys", "machines"]

/**
 * Warnings that fail the short run: all but `missing_test_data`. Ids differ from run to run, and with few examples
 * chance decides if a request follows a link to an object that exists. The longer run shows that warning, too.
 */
const WARNINGS = [
  ...["missing_auth", "base_url_mismatch", "validation_mismatch", "missing_deserializer", "unused_openapi_auth"],
  ...["unsupported_regex", "method_not_allowed", "constants_extraction", "unmatched_filter"],
  ...["unresolvable_reference", "low_valid_rate"],
]

it("the groups of this test have every endpoint", async () => {
  const document = (await (await fetch(`http://127.0.0.1:${replica.port}/1/openapi.json`)).json()) as OpenApi
  const operations = Object.values(document.paths).flatMap((methods) => Object.values(methods))
  expect([...new Set(operations.flatMap(({ tags }) => tags))].sort()).toEqual([...TAGS, ...ELSEWHERE].toSorted())
})

interface OpenApi {
  paths: Record<string, Record<string, { tags: string[] }>>
}

it.each(RUNS.map((tags) => [tags.join(", "), tags] as const))(
  "the API matches the OpenAPI document in %s",
  { timeout: DEADLINE },
  async (_title, tags) => {
    const over = new AbortController()
    const accounts = tags.includes("accounts") ? maintainAccounts(over.signal) : undefined
    try {
      const { code, said } = await schemathesis(argumentsFor(tags))
      expect(code, said).toBe(0)
      expect(said).toMatch(/No issues found/)
    } finally {
      over.abort()
      await accounts
    }
  },
)

function argumentsFor(tags: readonly string[]): string[] {
  const address = `http://127.0.0.1:${replica.port}/1`
  const budget = ["--max-examples", EXAMPLES, ...(SEED === "" ? [] : ["--seed", SEED])]
  const isLong = process.env["SCHEMATHESIS_EXAMPLES"] !== undefined
  const phases = [
    ...["examples", "fuzzing"],
    ...(isLong || !tags.some((tag) => LONG.includes(tag)) ? ["coverage"] : []),
    ...(tags === STATELESS ? [] : ["stateful"]),
  ]
  return [
    ...["--config-file", join(import.meta.dirname, "schemathesis.toml"), "run", `${address}/openapi.json`],
    ...["--url", address, ...tags.flatMap((tag) => ["--include-tag", tag]), "--phases", phases.join(",")],
    ...[...budget, "--no-color", ...(isLong ? [] : ["--warnings", WARNINGS.join(",")])],
  ]
}

async function schemathesis(args: readonly string[]): Promise<{ code: number | null; said: string }> {
  const child = spawn(join(programs, "schemathesis"), args, {
    cwd: folder,
    stdio: ["ignore", "pipe", "inherit"],
    env: {
      PATH: process.env["PATH"],
      PYTHONDONTWRITEBYTECODE: "1",
      SCHEMATHESIS_HOOKS: join(import.meta.dirname, "hooks.py"),
      BERTH_KEY: key,
      BERTH_TOKEN: token,
      BERTH_KEY_ID: keyId,
      BERTH_KEY_NAME: KEY_NAME,
      BERTH_UPLOAD: upload,
      BERTH_PROJECT: fixture.project,
      BERTH_ORGANIZATION: fixture.organization,
    },
  })
  let said = ""
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    said += text
  })
  const [code] = (await once(child, "close")) as [number | null]
  return { code, said }
}
