import { Agent, fetch, type RequestInit, type Response } from "undici"
import type { ProblemDocument } from "../../src/api/http/problem.ts"
import type { JobCreated } from "../../src/api/resources/jobs/schema.ts"
import type { JobRecord } from "../../src/core/records/job.ts"
import type { ProjectFixture } from "./facade-project.ts"

export const BASE_DOMAIN = "berth.test"

/** DNS lookup that resolves every host to this machine. */
const loopback = new Agent({
  connect: { lookup: (_host, _options, callback) => callback(null, [{ address: "127.0.0.1", family: 4 }]) },
})

export interface Call {
  method?: string
  key?: string | undefined
  /** Body, sent as JSON unless it is text or bytes. */
  body?: unknown
  type?: string
  headers?: Record<string, string>
  host?: string
  signal?: AbortSignal
  redirect?: "manual"
}

/** Form of a project's address: its own host, or a path on the host without a project. */
export const ADDRESS_FORMS = ["host", "path"] as const
export type AddressForm = (typeof ADDRESS_FORMS)[number]

/** Returns host and path of a request in the form of address. */
function addressed(form: AddressForm, host: string, path: string): { host: string; path: string } {
  const suffix = `.${BASE_DOMAIN}`
  if (form === "host" || !host.endsWith(suffix)) return { host, path }
  return { host: BASE_DOMAIN, path: `/projects/${host.slice(0, -suffix.length)}${path}` }
}

/** Calls a replica like a client of the fixture's project does. */
export function caller(
  replica: () => { port: number },
  fixture: ProjectFixture,
  form: () => AddressForm = () => "host",
) {
  return (path: string, call: Call = {}): Promise<Response> => {
    const { key = fixture.keys.admin, body, type, headers, host = `${fixture.project}.${BASE_DOMAIN}` } = call
    const init: RequestInit = { dispatcher: loopback, method: call.method ?? (body === undefined ? "GET" : "POST") }
    const isSentAsIs = body === undefined || typeof body === "string" || body instanceof Uint8Array
    const text = isSentAsIs ? body : JSON.stringify(body)
    init.headers = {
      ...(key !== "" && { "X-Service-Api-Key": key }),
      ...(text !== undefined && { "Content-Type": type ?? "application/json" }),
      ...headers,
    }
    if (text !== undefined) init.body = text
    if (call.signal !== undefined) init.signal = call.signal
    if (call.redirect !== undefined) init.redirect = call.redirect
    const to = addressed(form(), host, path)
    return fetch(`http://${to.host}:${replica().port}${to.path}`, init)
  }
}

export type Caller = ReturnType<typeof caller>

/** Returns the problem document of a response, and checks the rules for problems: status, media type, request id. */
export async function problemIn(response: Response): Promise<ProblemDocument> {
  const text = await response.text()
  if (response.headers.get("content-type") !== "application/problem+json; charset=utf-8") {
    throw new Error(`${response.status} is no problem document: ${text}`)
  }
  const problem = JSON.parse(text) as ProblemDocument
  if (problem.status !== response.status) throw new Error(`the document says ${problem.status}: ${text}`)
  if (problem.instance !== response.headers.get("x-request-id")) throw new Error(`instance is not the id: ${text}`)
  return problem
}

export async function created(response: Response): Promise<JobCreated> {
  if (response.status !== 201)
    throw new Error(`the object was not created: ${response.status} ${await response.text()}`)
  return (await response.json()) as JobCreated
}

export async function recordIn(response: Response): Promise<JobRecord> {
  if (response.status !== 200) throw new Error(`no record: ${response.status} ${await response.text()}`)
  return (await response.json()) as JobRecord
}
