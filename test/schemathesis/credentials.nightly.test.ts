import { spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import { once } from "node:events"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { openApiDocument } from "../../src/api/document.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { isTerminal } from "../../src/core/apis/job.ts"
import { IdentityIssuer } from "../../src/core/identity/identity-tokens.ts"
import { TokenVerifier } from "../../src/core/identity/oidc.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import { JOBS } from "../../src/core/resources.ts"
import { type Credentials, endpointsOf, makeTenant } from "../facade/tenants.ts"
import { BASE_DOMAIN, caller } from "../harness/caller.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { type ProjectControllers, startProjectControllers } from "../harness/project-controllers.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import { AUDIENCE, type Issuer, startIssuer } from "../oidc.ts"
import { pythonEnvironment } from "../python-environment.ts"

/**
 * Schemathesis without any knowledge of the API but its OpenAPI document, with different credentials. Most of its
 * requests are rejected. No response may be a 5xx, or a status, a header, a media type or a body that the document does
 * not describe.
 */
const EXAMPLES = process.env["SCHEMATHESIS_EXAMPLES"] ?? "15"
const SEED = process.env["SCHEMATHESIS_SEED"] ?? "1"

const CHECKS = [
  ...["not_a_server_error", "status_code_conformance", "content_type_conformance"],
  ...["response_headers_conformance", "response_schema_conformance"],
]

/** Timeout of one run in milliseconds, far above its normal duration. */
const DEADLINE = 3_600_000

const TAGS = ["jobs", "cronjobs", "keys", "connections", "resources", "accounts"]

const fixture = projectFixture("schemathesis-credentials")
const call = caller(() => replica, fixture)
let replica: Replica
let controllers: ProjectControllers
let issuer: Issuer
let programs: string
/** Projects of the tenants, whose namespaces have the same names. */
const projects = new Set<string>()
const stop = new AbortController()
let ending: Promise<void>
let folder: string

beforeAll(async () => {
  programs = await pythonEnvironment("schemathesis", join(import.meta.dirname, "requirements.txt"))
  folder = await mkdtemp(join(tmpdir(), "berth-schemathesis-"))
  issuer = await startIssuer()
  controllers = await startProjectControllers()
  const issuing = { systemNamespace: SYSTEM_NAMESPACE, issuer: "https://berth.example", clock: systemClock }
  replica = await startReplica({
    // Without an issuer, connections need a secret, which no schema can say.
    identity: new IdentityIssuer({ ...issuing, client: fixture.client }),
    tokens: new TokenVerifier({ issuers: [{ issuer: issuer.url, audience: AUDIENCE }], clock: systemClock }),
    // No operator runs here, which would check connections.
    settings: { requestsPerMinute: 0, discoveriesPerMinute: 0, checkSeconds: 0.1, clouds: ["aws", "gcp", "azure"] },
  })
  ending = endJobs()
}, 600_000)
afterAll(async () => {
  stop.abort()
  await ending
  await replica?.close()
  await controllers?.stop()
  await issuer?.close()
  await rm(folder, { recursive: true, force: true })
})

/** Makes a new tenant for each run, because a run deletes what it finds: also its own key or project. */
async function tenant() {
  const endpoints = endpointsOf(openApiDocument(["aws", "gcp", "azure"]) as never)
  const made = await makeTenant({
    call,
    client: fixture.client,
    issuer,
    endpoints,
    name: `run-${randomBytes(4).toString("hex")}`,
  })
  projects.add(made.project)
  return made
}

type Tenant = Awaited<ReturnType<typeof tenant>>

/** Ends jobs like a controller does, because some requests wait for a job's end. Runs until the tests are over. */
async function endJobs(): Promise<void> {
  while (!stop.signal.aborted) {
    for (const { metadata, status } of replica.jobs.store.list()) {
      if (isTerminal(status?.phase) || !projects.has(metadata.namespace ?? "")) continue
      await ifFound(fixture.client.patchStatus(JOBS, metadata, { merge: { status: { phase: "succeeded" } } }))
    }
    await delay(200)
  }
}

const token = (value: string): Credentials => ({ headers: { Authorization: `Bearer ${value}` } })

describe.each<[string, (of: Tenant) => Credentials]>([
  ["an admin's key", ({ keys }) => ({ key: keys.admin })],
  ["a viewer's key", ({ keys }) => ({ key: keys.viewer })],
  ["a token of an owner", ({ people }) => token(people.owner)],
  ["a token of a project's viewer", ({ people }) => token(people.projectViewer)],
])("the API with %s", (_, credentialsOf) => {
  it.each(TAGS)("gives no 5xx and nothing undocumented in the group %s", { timeout: DEADLINE }, async (tag) => {
    const made = await tenant()
    const credentials = credentialsOf(made)
    const headers = "key" in credentials ? { "X-Service-Api-Key": credentials.key } : credentials.headers
    const host = tag === "accounts" ? BASE_DOMAIN : `${made.project}.${BASE_DOMAIN}`
    try {
      const { code, said } = await schemathesis(tag, { ...headers, Host: host })
      expect(code, said).toBe(0)
    } finally {
      await made.keyController.stop()
    }
  })
})

async function schemathesis(tag: string, headers: Record<string, string>) {
  const address = `http://127.0.0.1:${replica.port}/1`
  const args = [
    ...["--config-file", join(import.meta.dirname, "credentials.toml"), "run", `${address}/openapi.json`],
    ...["--url", address, "--include-tag", tag, "--checks", CHECKS.join(","), "--max-examples", EXAMPLES],
    // No link of the document leads from one of these operations to another.
    ...(tag === "resources" ? ["--phases", "examples,coverage,fuzzing"] : []),
    ...(SEED === "" ? [] : ["--seed", SEED]),
    ...Object.entries(headers).flatMap(([name, value]) => ["-H", `${name}: ${value}`]),
    "--no-color",
  ]
  const child = spawn(join(programs, "schemathesis"), args, {
    cwd: folder,
    stdio: ["ignore", "pipe", "inherit"],
    env: { PATH: process.env["PATH"], PYTHONDONTWRITEBYTECODE: "1" },
  })
  let said = ""
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    said += text
  })
  const [code] = (await once(child, "close")) as [number | null]
  return { code, said }
}
