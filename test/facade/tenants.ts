import { createHash, randomBytes, randomUUID } from "node:crypto"
import type { Response } from "undici"
import { expect } from "vitest"
import type { Role } from "../../src/core/apis/apikey.ts"
import type { StoredOrganization } from "../../src/core/apis/organization.ts"
import type { StoredProject } from "../../src/core/apis/project.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { ORGANIZATIONS, PROJECTS } from "../../src/core/resources.ts"
import { BASE_DOMAIN, type Caller } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { makeIdleVm } from "../harness/idle-vms.ts"
import { type KeyController, startKeyController } from "../harness/machine-users.ts"
import { makeRunningVm } from "../harness/running-vms.ts"
import type { Issuer } from "../oidc.ts"

/** An operation of the OpenAPI document. */
export interface Endpoint {
  method: string
  /** Path of the document, with its parameters in braces. */
  path: string
  /** True for operations of the account scope, on the host without a project. */
  isAccounts: boolean
  /** Example of a valid body in the document. */
  example?: Record<string, unknown> | undefined
  /** True if the operation creates an object that its body describes. */
  creates: boolean
  /** Names of the query parameters. */
  query: string[]
}

interface Operation {
  tags: string[]
  parameters?: { name: string; in: string }[]
  responses: Record<string, unknown>
  requestBody?: { content: Record<string, { example?: Record<string, unknown> }> }
}

/** Returns every operation of the document. */
export function endpointsOf(document: { paths: Record<string, Record<string, Operation>> }): Endpoint[] {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { tags, parameters = [], requestBody, responses }]) => ({
      method: method.toUpperCase(),
      path,
      isAccounts: tags.includes("accounts"),
      example: requestBody?.content["application/json"]?.example,
      // A session needs a running job.
      creates: method === "post" && "201" in responses && requestBody !== undefined && !path.endsWith("/sessions"),
      query: parameters.filter((parameter) => parameter.in === "query").map(({ name }) => name),
    })),
  )
}

/** Headers or key that authenticate a caller. */
export type Credentials = { key: string } | { headers: Record<string, string> }

/** An object of a tenant, from the response to its POST. */
export interface Made {
  id: string
  name?: string
}

/** A tenant: an organization with a project, and one object from each POST of the document. */
export interface Tenant {
  organization: string
  project: string
  /** Tokens of people by their role in the tenant. */
  people: Record<PersonRole, string>
  keys: Record<Role, string>
  /** Created objects by the last part of their POST's path: jobs, cronjobs, … */
  made: Record<string, Made>
  keyController: KeyController
}

const PEOPLE = ["owner", "admin", "member", "projectAdmin", "projectDeveloper", "projectViewer", "inGroup"] as const
export type PersonRole = (typeof PEOPLE)[number]

/** Each person's role in the project. */
export const ROLE_OF: Readonly<Record<PersonRole, Role>> = {
  owner: "admin",
  admin: "admin",
  member: "developer",
  projectAdmin: "admin",
  projectDeveloper: "developer",
  projectViewer: "viewer",
  inGroup: "developer",
}

export interface TenantOptions {
  /** Unique prefix of the people's names. */
  name: string
  call: Caller
  client: KubeClient
  issuer: Issuer
  endpoints: readonly Endpoint[]
}

/** Creates a tenant over REST as its owner. Roles that REST can't grant are written with kubectl's rights. */
export async function makeTenant(options: TenantOptions): Promise<Tenant> {
  const { name, call, client, issuer, endpoints } = options
  const subjects = Object.fromEntries(PEOPLE.map((who) => [who, `${name}-${who}`])) as Record<PersonRole, string>
  const people = Object.fromEntries(
    await Promise.all(Object.entries(subjects).map(async ([who, sub]) => [who, await tokenOf(options, sub)])),
  ) as Record<PersonRole, string>
  const owner = bearer(people.owner)
  const made: Tenant["made"] = {}
  const make = async (endpoint: Endpoint, host: string): Promise<void> => {
    const path = endpoint.path.replaceAll(/([a-z]+)\/\{\w+\}/g, (_, segment) => `${segment}/${made[segment]?.id}`)
    // The same names and Idempotency-Keys in every tenant.
    const headers = { ...owner.headers, "Idempotency-Key": "the same for all" }
    const response = await call(`/1${path}`, { key: "", headers, host, body: endpoint.example })
    made[lastOf(path)] = await madeIn(response)
  }
  const makers = endpoints.filter(({ creates }) => creates)
  for (const endpoint of makers.filter(({ isAccounts }) => isAccounts)) await make(endpoint, BASE_DOMAIN)
  const organization = made["organizations"]?.id ?? ""
  const project = made["projects"]?.id ?? ""
  await addPeople(client, { organization, project, issuer: issuer.url, subjects })
  const keyController = await startKeyController(project)
  const host = `${project}.${BASE_DOMAIN}`
  for (const endpoint of makers.filter(({ isAccounts }) => !isAccounts)) await make(endpoint, host)
  const content = randomBytes(16)
  const sha256 = createHash("sha256").update(content).digest("hex")
  const put = await call(`/1/uploads/${sha256}`, {
    key: "",
    ...owner,
    host,
    method: "PUT",
    body: content,
    type: "application/gzip",
  })
  expect(put.status, await put.text()).toBe(201)
  made["uploads"] = { id: sha256 }
  // A job of its own: the Launch's name has the job's id.
  const job = await madeIn(await call("/1/jobs", { key: "", ...owner, host, body: { name: "warm", image: "a" } }))
  const idle = await makeIdleVm(client, { namespace: project, name: job.name ?? "" })
  made["idle"] = { id: idle.metadata.name }
  const busy = await madeIn(await call("/1/jobs", { key: "", ...owner, host, body: { name: "busy", image: "a" } }))
  const running = await makeRunningVm(client, { namespace: project, name: busy.name ?? "" })
  made["running"] = { id: running.metadata.name }
  await eventually(async () => {
    const opened = await call("/1/jobs/busy/sessions", { key: "", ...owner, host, body: { port: 80 } })
    made["sessions"] = await madeIn(opened)
  })
  made["members"] = { id: `${issuer.url}#${subjects.admin}` }
  const keys = { admin: "", developer: "", viewer: "" }
  for (const role of ["admin", "developer", "viewer"] as const) {
    const response = await call("/1/keys", { key: "", ...owner, host, body: { name: `${role}-key`, role } })
    expect(response.status).toBe(201)
    keys[role] = ((await response.json()) as { value: string }).value
  }
  return { organization, project, people, keys, made, keyController }
}

async function tokenOf({ name, issuer }: TenantOptions, sub: string): Promise<string> {
  const groups = sub === `${name}-inGroup` ? [`${name}-engineers`] : []
  return issuer.token({ sub, email: `${sub}@example.com`, groups, exp: Math.floor(Date.now() / 1000) + 3600 })
}

/** Gives every person except the owner the role in their name. */
async function addPeople(
  client: KubeClient,
  who: { organization: string; project: string; issuer: string; subjects: Record<PersonRole, string> },
): Promise<void> {
  const { subjects, issuer } = who
  const userId = (person: PersonRole): string => `${issuer}#${subjects[person]}`
  const group = `${issuer}#${subjects.inGroup.replace("inGroup", "engineers")}`
  const { spec } = await client.get<StoredOrganization>(ORGANIZATIONS, { name: who.organization })
  const members = [
    ...(spec.members ?? []),
    { userId: userId("admin"), role: "admin" },
    { userId: userId("member"), role: "member" },
  ]
  const merge = { spec: { members, groups: [{ group, role: "member" }] } }
  await client.patch(ORGANIZATIONS, { name: who.organization }, { merge })
  const own = (["Admin", "Developer", "Viewer"] as const).map((role) => ({
    userId: userId(`project${role}`),
    role: role.toLowerCase(),
  }))
  await client.patch(PROJECTS, { name: who.project }, { merge: { spec: { members: own } } })
  await eventually(async () => {
    const { status, metadata } = await client.get<StoredProject>(PROJECTS, { name: who.project })
    expect(status).toMatchObject({ namespace: who.project, observedGeneration: metadata.generation })
  })
}

async function madeIn(response: Response): Promise<Made> {
  const text = await textOf(response)
  expect(response.status, text).toBe(201)
  const { id, job_id, session_id, name } = JSON.parse(text) as Record<
    "id" | "job_id" | "session_id" | "name",
    string | undefined
  >
  const made = id ?? job_id ?? session_id
  if (made === undefined) throw new Error(`an answer without an id: ${text}`)
  return { id: made, ...(name !== undefined && { name }) }
}

export function bearer(token: string): { headers: Record<string, string> } {
  return { headers: { Authorization: `Bearer ${token}` } }
}

function lastOf(path: string): string {
  return path.split("/").at(-1) ?? ""
}

/** Returns an id of the same form that belongs to no object. */
export function unusedIdLike(id: string): string {
  if (/^[0-9a-f]{8}-/.test(id)) return randomUUID()
  if (/^[0-9a-f]{64}$/.test(id)) return randomBytes(32).toString("hex")
  return id.replaceAll(/[0-9a-f]{10}$/g, randomBytes(5).toString("hex"))
}

/** Returns an endpoint's path with these objects' ids as parameters. @throws Error if an id is not known */
export function addressOf({ path }: Endpoint, idOf: (collection: string) => string | undefined): string {
  const filled = path.replaceAll(/([a-z-]+)\/\{\w+\}/g, (_, collection: string) => {
    const id = idOf(collection)
    if (id === undefined)
      throw new Error(`${path}: no POST of the document makes ${collection}: make one in makeTenant`)
    return `${collection}/${encodeURIComponent(id)}`
  })
  return `/1${filled}`
}

/** Returns the text of a response; of a stream of events, which does not end, the first piece. */
export async function textOf(response: Response): Promise<string> {
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return response.text()
  const pieces = response.body?.getReader()
  const first = await pieces?.read()
  await pieces?.cancel()
  return new TextDecoder().decode(first?.value as Uint8Array | undefined)
}
