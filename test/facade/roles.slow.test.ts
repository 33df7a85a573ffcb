import { createHash, randomBytes, randomUUID } from "node:crypto"
import type { Express } from "express"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { ROLES, type Role } from "../../src/core/apis/apikey.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { API_KEYS, JOBS, LAUNCHES, PROJECTS } from "../../src/core/resources.ts"
import { testNamespace } from "../control-plane.ts"
import { deleteKey, makeKey } from "../harness/api-keys.ts"
import { ADDRESS_FORMS, caller, problemIn } from "../harness/caller.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { makeProject, projectFixture } from "../harness/facade-project.ts"
import { makeIdleVm } from "../harness/idle-vms.ts"

const fixture = projectFixture("facade-roles")
const elsewhere = testNamespace("facade-roles-else")
const otherProject = `p-${randomBytes(4).toString("hex")}`
let replica: Replica
const call = caller(() => replica, fixture)
/** Keys that give no access here. */
const bad = { none: "", malformed: "hunter2", expired: "", revoked: "", otherProjects: "" }

beforeAll(async () => {
  // Its requests are more than a key's limit.
  replica = await startReplica({ settings: { requestsPerMinute: 0 } })
  const { client, namespace } = fixture
  await makeProject(client, otherProject, elsewhere)
  bad.otherProjects = await makeKey(client, elsewhere, "admin")
  bad.expired = await makeKey(client, namespace, "admin", { expiresAt: "2020-01-01T00:00:00Z" })
  bad.revoked = await makeKey(client, namespace, "admin", { name: "revoked" })
  await deleteKey(client, { namespace, name: "revoked" })
})
afterAll(async () => {
  await Promise.all(launches.map(({ metadata }) => fixture.client.delete(LAUNCHES, metadata)))
  await fixture.client.delete(PROJECTS, { name: otherProject })
  await replica.close()
})

const unique = (): string => `x${randomBytes(6).toString("hex")}`

async function madeBy(path: string, body: object): Promise<{ id: string; name: string }> {
  const response = await call(path, { body })
  if (response.status !== 201) throw new Error(`${path}: ${response.status} ${await response.text()}`)
  const { id, job_id, name } = (await response.json()) as { id?: string; job_id?: string; name: string }
  return { id: id ?? job_id ?? "", name }
}

const job = () => madeBy("/1/jobs", { image: "a" })
const key = () => madeBy("/1/keys", { name: unique(), role: "viewer" })
const cronjobBody = () => ({ name: unique(), cron_spec: "0 3 * * *", job_definition: { image: "a" } })
const cronjob = () => madeBy("/1/cronjobs", cronjobBody())
const arrayBody = () => ({ name: unique(), size: 2, job_definition: { image: "a" } })
const array = () => madeBy("/1/arrays", arrayBody())
const connectionBody = () => ({ name: unique(), type: "aws", access_key_id: "AKIA0", secret_access_key: "s" })
const upload = () => {
  const body = randomBytes(16)
  return { path: `/uploads/${createHash("sha256").update(body).digest("hex")}`, body, type: "application/gzip" }
}
/** Launches to delete at the end. */
const launches: StoredLaunch[] = []

/** Returns the name of a Launch whose VM is idle. */
const idleLaunch = async () => {
  const { name } = await job()
  const launch = await makeIdleVm(fixture.client, { namespace: fixture.namespace, name })
  launches.push(launch)
  return launch.metadata.name
}
const connection = () => madeBy("/1/connections", connectionBody())

// Nothing listens there.
const webhookBody = () => ({ name: unique(), url: "http://127.0.0.1:2", events: ["job.*"] })
const newWebhook = () => madeBy("/1/webhooks", webhookBody())
let sharedWebhook: ReturnType<typeof newWebhook> | undefined
const webhook = () => {
  sharedWebhook ??= newWebhook()
  return sharedWebhook
}

const machineBody = () => ({ name: unique() })
const newMachine = () => madeBy("/1/machines", machineBody())
let sharedMachine: ReturnType<typeof newMachine> | undefined
const machine = () => {
  sharedMachine ??= newMachine()
  return sharedMachine
}

interface Sent {
  path: string
  body?: object
  type?: string
}

/** One endpoint: the statuses for viewers, developers and admins, and a request that is valid apart from its key. */
interface Row {
  statuses: readonly [viewer: number, developer: number, admin: number]
  request: () => Promise<Sent> | Sent
}

/** The contract's roles, endpoint by endpoint (contract, "Endpoints"; roles that may list keys: design, section 8). */
const TABLE: Readonly<Record<string, Row>> = {
  "POST /jobs": { statuses: [403, 201, 201], request: () => ({ path: "/jobs", body: { image: "a" } }) },
  "GET /jobs": { statuses: [200, 200, 200], request: () => ({ path: "/jobs" }) },
  "GET /job-groups": { statuses: [200, 200, 200], request: () => ({ path: "/job-groups" }) },
  "GET /jobs/:id": { statuses: [200, 200, 200], request: async () => ({ path: `/jobs/${(await job()).id}` }) },
  "GET /jobs/:id/logs": {
    statuses: [200, 200, 200],
    request: async () => ({ path: `/jobs/${(await job()).id}/logs` }),
  },
  "GET /events": { statuses: [200, 200, 200], request: () => ({ path: "/events" }) },
  "PATCH /jobs/:id": {
    statuses: [403, 200, 200],
    request: async () => ({ path: `/jobs/${(await job()).name}`, body: { priority: 1 } }),
  },
  "POST /jobs/:id/cancel": {
    statuses: [403, 200, 200],
    request: async () => ({ path: `/jobs/${(await job()).name}/cancel` }),
  },
  "GET /jobs/:id/dependents": {
    statuses: [200, 200, 200],
    request: async () => ({ path: `/jobs/${(await job()).name}/dependents` }),
  },
  "POST /cronjobs": { statuses: [403, 201, 201], request: () => ({ path: "/cronjobs", body: cronjobBody() }) },
  "GET /cronjobs": { statuses: [200, 200, 200], request: () => ({ path: "/cronjobs" }) },
  "GET /cronjobs/:name": {
    statuses: [200, 200, 200],
    request: async () => ({ path: `/cronjobs/${(await cronjob()).name}` }),
  },
  "PATCH /cronjobs/:name": {
    statuses: [403, 200, 200],
    request: async () => ({ path: `/cronjobs/${(await cronjob()).name}`, body: { is_active: false } }),
  },
  "POST /cronjobs/:name/run": {
    statuses: [403, 201, 201],
    request: async () => ({ path: `/cronjobs/${(await cronjob()).name}/run`, method: "POST" }),
  },
  "DELETE /cronjobs/:name": {
    statuses: [403, 204, 204],
    request: async () => ({ path: `/cronjobs/${(await cronjob()).id}` }),
  },
  "POST /arrays": { statuses: [403, 201, 201], request: () => ({ path: "/arrays", body: arrayBody() }) },
  "GET /arrays": { statuses: [200, 200, 200], request: () => ({ path: "/arrays" }) },
  "GET /arrays/:id": { statuses: [200, 200, 200], request: async () => ({ path: `/arrays/${(await array()).name}` }) },
  "GET /arrays/:id/dependents": {
    statuses: [200, 200, 200],
    request: async () => ({ path: `/arrays/${(await array()).name}/dependents` }),
  },
  "GET /arrays/:id/indexes": {
    statuses: [200, 200, 200],
    request: async () => ({ path: `/arrays/${(await array()).name}/indexes` }),
  },
  "PATCH /arrays/:id": {
    statuses: [403, 200, 200],
    request: async () => ({ path: `/arrays/${(await array()).name}`, body: { parallelism: 2 } }),
  },
  "DELETE /arrays/:id": {
    statuses: [403, 204, 204],
    request: async () => ({ path: `/arrays/${(await array()).id}` }),
  },
  "POST /arrays/:id/cancel": {
    statuses: [403, 200, 200],
    request: async () => ({ path: `/arrays/${(await array()).id}/cancel` }),
  },
  "POST /arrays/:id/retry-failed": {
    statuses: [403, 200, 200],
    request: async () => ({ path: `/arrays/${(await array()).id}/retry-failed` }),
  },
  "POST /keys": {
    statuses: [403, 403, 201],
    request: () => ({ path: "/keys", body: { name: unique(), role: "viewer" } }),
  },
  "GET /keys": { statuses: [200, 200, 200], request: () => ({ path: "/keys" }) },
  "GET /keys/:key_id": { statuses: [200, 200, 200], request: async () => ({ path: `/keys/${(await key()).id}` }) },
  "PATCH /keys/:key_id": {
    statuses: [403, 403, 200],
    request: async () => ({ path: `/keys/${(await key()).id}`, body: { role: "developer" } }),
  },
  "DELETE /keys/:key_id": { statuses: [403, 403, 204], request: async () => ({ path: `/keys/${(await key()).id}` }) },
  "POST /connections": {
    statuses: [403, 403, 201],
    request: () => ({ path: "/connections", body: connectionBody() }),
  },
  "GET /connections": { statuses: [200, 200, 200], request: () => ({ path: "/connections" }) },
  "GET /connections/:name": {
    statuses: [200, 200, 200],
    request: async () => ({ path: `/connections/${(await connection()).name}` }),
  },
  "POST /connections/:name/check": {
    // No operator runs here, which would answer.
    statuses: [403, 403, 404],
    request: async () => ({ path: "/connections/none/check", method: "POST" }),
  },
  "PATCH /connections/:name": {
    statuses: [403, 403, 200],
    request: async () => ({ path: `/connections/${(await connection()).name}`, body: { secret_access_key: "t" } }),
  },
  "DELETE /connections/:name": {
    statuses: [403, 403, 204],
    request: async () => ({ path: `/connections/${(await connection()).name}` }),
  },
  "POST /machines": { statuses: [403, 403, 201], request: () => ({ path: "/machines", body: machineBody() }) },
  "GET /machines": { statuses: [200, 200, 200], request: () => ({ path: "/machines" }) },
  "GET /machines/:name": {
    statuses: [200, 200, 200],
    request: async () => ({ path: `/machines/${(await machine()).name}` }),
  },
  "PATCH /machines/:name": {
    statuses: [403, 403, 200],
    request: async () => ({ path: `/machines/${(await machine()).name}`, body: { unschedulable: true } }),
  },
  "DELETE /machines/:name": {
    statuses: [403, 403, 204],
    request: async () => ({ path: `/machines/${(await newMachine()).name}` }),
  },
  "POST /machines/:name/token": {
    statuses: [403, 403, 200],
    request: async () => ({ path: `/machines/${(await machine()).name}/token` }),
  },
  "POST /webhooks": { statuses: [403, 403, 201], request: () => ({ path: "/webhooks", body: webhookBody() }) },
  "GET /webhooks": { statuses: [200, 200, 200], request: () => ({ path: "/webhooks" }) },
  "GET /webhooks/:name": {
    statuses: [200, 200, 200],
    request: async () => ({ path: `/webhooks/${(await webhook()).name}` }),
  },
  "PATCH /webhooks/:name": {
    statuses: [403, 403, 200],
    request: async () => ({ path: `/webhooks/${(await webhook()).name}`, body: { is_active: false } }),
  },
  "DELETE /webhooks/:name": {
    statuses: [403, 403, 204],
    request: async () => ({ path: `/webhooks/${(await newWebhook()).name}` }),
  },
  "POST /webhooks/:name/rotate": {
    statuses: [403, 403, 200],
    request: async () => ({ path: `/webhooks/${(await webhook()).name}/rotate` }),
  },
  "POST /webhooks/:name/test": {
    statuses: [403, 403, 200],
    request: async () => ({ path: `/webhooks/${(await webhook()).name}/test` }),
  },
  "GET /webhooks/:name/deliveries": {
    statuses: [200, 200, 200],
    request: async () => ({ path: `/webhooks/${(await webhook()).name}/deliveries` }),
  },
  "POST /jobs/cancellations": {
    statuses: [403, 200, 200],
    request: async () => ({ path: "/jobs/cancellations", body: { names: [(await job()).name] } }),
  },
  "GET /jobs/:id/launches": {
    statuses: [200, 200, 200],
    request: async () => ({ path: `/jobs/${(await job()).id}/launches` }),
  },
  "GET /jobs/:id/usage": {
    statuses: [200, 200, 200],
    request: async () => ({ path: `/jobs/${(await job()).id}/usage` }),
  },
  "GET /jobs/:id/timeline": {
    statuses: [200, 200, 200],
    request: async () => ({ path: `/jobs/${(await job()).id}/timeline` }),
  },
  "GET /offers": { statuses: [200, 200, 200], request: () => ({ path: "/offers?gpu=L4" }) },
  "GET /costs": { statuses: [200, 200, 200], request: () => ({ path: "/costs?by=cloud" }) },
  "GET /advice": { statuses: [200, 200, 200], request: () => ({ path: "/advice" }) },
  "GET /idle": { statuses: [200, 200, 200], request: () => ({ path: "/idle" }) },
  "DELETE /idle/:launch": {
    statuses: [403, 204, 204],
    request: async () => ({ path: `/idle/${await idleLaunch()}` }),
  },
  // The job does not run (test/sessions has one that does).
  "POST /jobs/:id/sessions": {
    statuses: [403, 409, 409],
    request: async () => ({ path: `/jobs/${(await job()).id}/sessions`, body: { port: 80 } }),
  },
  "GET /jobs/:id/sessions": {
    statuses: [200, 200, 200],
    request: async () => ({ path: `/jobs/${(await job()).id}/sessions` }),
  },
  // The job has not failed.
  "DELETE /jobs/:id/debug": {
    statuses: [403, 404, 404],
    request: async () => ({ path: `/jobs/${(await job()).id}/debug` }),
  },
  "DELETE /jobs/:id/sessions/:session_id": {
    statuses: [403, 404, 404],
    request: async () => ({ path: `/jobs/${(await job()).id}/sessions/${randomUUID()}` }),
  },
  "GET /whoami": { statuses: [200, 200, 200], request: () => ({ path: "/whoami" }) },
  "PUT /uploads/:sha256": { statuses: [403, 201, 201], request: () => upload() },
  "GET /uploads/:sha256": {
    statuses: [200, 200, 200],
    request: async () => {
      const { path, ...made } = upload()
      await call(`/1${path}`, { method: "PUT", ...made })
      return { path }
    },
  },
  "GET /resources/storages": { statuses: [200, 200, 200], request: () => ({ path: "/resources/storages" }) },
  "GET /resources/repositories": { statuses: [200, 200, 200], request: () => ({ path: "/resources/repositories" }) },
  "GET /resources/virtual-machine-pools": {
    statuses: [200, 200, 200],
    request: () => ({ path: "/resources/virtual-machine-pools" }),
  },
}

/** Endpoints without a role: the reference of the API and its files. */
const PUBLIC = [
  "GET /openapi.json",
  "GET /docs",
  ...["docs.css", "docs.js", "swagger-ui-bundle.js", "swagger-ui.css"].map((file) => `GET /docs/${file}`),
]

interface Layer {
  route?: { path: string; methods: Record<string, boolean> }
  handle: { stack?: Layer[] }
}

/** Returns every method and path under /1 of the application, read from its routers. */
function endpointsOf(app: Express): string[] {
  const { stack } = app.router as unknown as { stack: Layer[] }
  const isProjects = ({ handle }: Layer): boolean => handle.stack?.some(({ route }) => route?.path === "/jobs") ?? false
  const projects = stack.find(isProjects)
  return (projects?.handle.stack ?? []).flatMap(({ route }) =>
    Object.keys(route?.methods ?? {})
      .filter((method) => !["_all", "options"].includes(method))
      .map((method) => `${method.toUpperCase()} ${route?.path}`),
  )
}

it("the table of roles has a row for every endpoint", () => {
  expect(endpointsOf(replica.app).toSorted()).toEqual([...Object.keys(TABLE), ...PUBLIC].toSorted())
})

it("the OpenAPI document has every endpoint", async () => {
  const { paths } = (await (await call("/1/openapi.json")).json()) as {
    paths: Record<string, Record<string, { tags?: string[] }>>
  }
  const documented = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      // The accounts' endpoints have a matrix of their own (accounts.test.ts).
      .filter(([, { tags }]) => !tags?.includes("accounts"))
      .map(([method]) => `${method.toUpperCase()} ${path.replaceAll(/\{(\w+)\}/g, ":$1")}`),
  )
  expect(documented.filter((endpoint) => !PUBLIC.includes(endpoint)).toSorted()).toEqual(Object.keys(TABLE).toSorted())
})

const ROWS = ADDRESS_FORMS.flatMap((form) =>
  Object.entries(TABLE).map(([endpoint, row]) => ({ ...row, endpoint, form })),
)

describe.each(ROWS)("$endpoint, addressed by $form", ({ endpoint, statuses, request, form }) => {
  const [method = ""] = endpoint.split(" ")
  const callInForm = caller(
    () => replica,
    fixture,
    () => form,
  )
  const send = async (by: string) => {
    const { path, ...sent } = await request()
    return callInForm(`/1${path}`, { method, key: by, ...sent })
  }

  it.each(Object.keys(bad) as (keyof typeof bad)[])("returns 401 for a key that is: %s", async (kind) => {
    const response = await send(bad[kind])
    expect(response.status).toBe(401)
    expect(response.headers.get("www-authenticate")).toContain("X-Service-Api-Key")
    await problemIn(response)
  })

  it.each(ROLES.map((role, i): [Role, number] => [role, statuses[i] ?? 0]))(
    "gives a %s the status %i",
    async (role, status) => {
      const response = await send(fixture.keys[role])
      expect(response.status).toBe(status)
      if (status === 403)
        expect((await problemIn(response)).detail).toMatch(/^This request needs the role \w+ or higher/)
    },
  )
})

/** Endpoints that read JSON. A GET's body can't change its meaning (RFC 9110, section 9.3.1), so Berth ignores it. */
const WRITING = Object.entries(TABLE).filter(([endpoint]) => !/^GET |^PUT .uploads/.test(endpoint))

describe.each(WRITING)("%s", (endpoint, { statuses, request }) => {
  const [method = ""] = endpoint.split(" ")

  it("rejects a body that it doesn't understand, and changes nothing", async () => {
    const { path, type = "application/json", body: valid } = await request()
    const send = (body: string, mediaType = type) => call(`/1${path}`, { method, body, type: mediaType })
    const unknown = await problemIn(await send('{"x-unknown":1}'))
    expect(unknown.status).toBe(400)
    expect(unknown.errors.map(({ pointer }) => pointer)).toContain("/x-unknown")
    expect((await problemIn(await send("x=1", "application/x-www-form-urlencoded"))).status).toBe(415)
    if (valid !== undefined) return
    expect((await problemIn(await send("[]"))).errors[0]?.detail).toContain("must be an object")
    expect((await send("{}")).status).toBe(statuses[2])
  })
})

it("returns the same 401 for a key of another project, whether this project exists or not", async () => {
  const said = async (host: string) => {
    const { instance: _, ...problem } = await problemIn(await call("/1/jobs", { key: bad.otherProjects, host }))
    return problem
  }
  const here = await said(`${fixture.project}.berth.test`)
  expect(here.status).toBe(401)
  expect(await said("nowhere.berth.test")).toEqual(here)
})

it("the API changes nothing for rejected requests to keys", async () => {
  const { client, namespace } = fixture
  const state = async () => [
    (await client.list(JOBS, { namespace })).items.length,
    (await client.list(API_KEYS, { namespace })).items.length,
  ]
  const { id } = await key()
  const before = await state()
  for (const by of [...Object.values(bad), fixture.keys.viewer, fixture.keys.developer]) {
    await call("/1/keys", { key: by, body: { name: unique(), role: "admin" } })
    await call(`/1/keys/${id}`, { key: by, method: "DELETE" })
    await call(`/1/keys/${id}`, { key: by, method: "PATCH", body: { role: "admin" } })
  }
  expect(await state()).toEqual(before)
  expect(await (await call(`/1/keys/${id}`)).json()).toMatchObject({ role: "viewer" })
})
