import { request } from "node:http"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { BASE_DOMAIN, caller, problemIn } from "../harness/caller.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { makeProject, projectFixture } from "../harness/facade-project.ts"

const fixture = projectFixture("facade-addresses")
const OTHER = "the-other-project"
let replica: Replica
let withoutHosts: Replica
const call = caller(() => replica, fixture)
const callWithoutHosts = caller(() => withoutHosts, fixture)
const atPath = (path: string): string => `/projects/${fixture.project}/1${path}`

beforeAll(async () => {
  replica = await startReplica()
  withoutHosts = await startReplica({ settings: { projectHosts: false } })
})
afterAll(() => Promise.all([replica.close(), withoutHosts.close()]))

/** Sends a path exactly as it is: fetch would resolve its dots. */
function statusOf(path: string, host: string): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const headers = { Host: host, "X-Service-Api-Key": fixture.keys.admin }
    const sent = request({ host: "127.0.0.1", port: replica.port, path, headers }, async (response) => {
      const body = (await response.toArray()).join("")
      resolve({ status: response.statusCode ?? 0, body })
    })
    sent.once("error", reject).end()
  })
}

describe("a project's path on one host", () => {
  it.each([BASE_DOMAIN, "localhost", "127.0.0.1"])(
    "serves the project on the host %s, without its own host",
    async (host) => {
      const created = await call(atPath("/jobs"), { host, body: { image: "a" } })
      expect(created.status).toBe(201)
      const { job_id } = (await created.json()) as { job_id: string }
      expect(created.headers.get("location")).toBe(atPath(`/jobs/${job_id}`))
      const found = await call(created.headers.get("location") ?? "", { host })
      expect(await found.json()).toMatchObject({ id: job_id, project_id: fixture.project })
    },
  )

  it("serves the project on its own host, with the addresses of each form", async () => {
    const byPath = await call(atPath("/keys"), { body: { name: "by-path", role: "viewer" } })
    expect(byPath.headers.get("location")).toMatch(new RegExp(`^${atPath("/keys/")}`))
    const byHost = await call("/1/keys", { body: { name: "by-host", role: "viewer" } })
    expect(byHost.headers.get("location")).toMatch(/^\/1\/keys\//)
  })

  it("takes precedence over the default project of a host without one", async () => {
    const own = await startReplica({ settings: { defaultProject: OTHER } })
    const response = await caller(() => own, fixture)(atPath("/jobs"), { host: "localhost" })
    expect(response.status).toBe(200)
    await own.close()
  })

  it.each([`${OTHER}.${BASE_DOMAIN}`, `a.b.${BASE_DOMAIN}`])(
    "is rejected before authentication on the host %s, which names another project",
    async (host) => {
      for (const key of [fixture.keys.admin, ""]) {
        const response = await call(atPath("/jobs"), { host, key })
        expect(response.status).toBe(400)
        expect((await problemIn(response)).detail).toContain(
          `does not name the project "${fixture.project}" of the path`,
        )
      }
    },
  )

  it("has no operations of organizations, which have no path of a project", async () => {
    for (const path of ["/organizations", `/projects/${fixture.project}`, `/projects/${fixture.project}/1/jobs`]) {
      const response = await call(atPath(path), { host: BASE_DOMAIN })
      expect(response.status, path).toBe(404)
    }
    expect((await call(`/1/projects/${fixture.project}/1/jobs`, { host: BASE_DOMAIN })).status).toBe(404)
  })

  it.each([
    ["an encoded slash", `/projects/x%2f..%2f{p}/1/jobs`, 401],
    ["an encoded slash after the project", `/projects/{p}%2f1/1/jobs`, 401],
    ["a parent as project", `/projects/../1/jobs`, 401],
    ["a parent of another project", `/projects/${OTHER}/1/../../{p}/1/jobs`, 404],
    ["an encoded parent of another project", `/projects/${OTHER}/1/%2e%2e/%2e%2e/{p}/1/jobs`, 404],
    ["no project", "/projects//1/jobs", 404],
    ["doubled slashes first", "//projects/{p}/1/jobs", 404],
    ["doubled slashes before the version", "/projects/{p}//1/jobs", 404],
    ["a project in upper case", "/projects/{P}/1/jobs", 401],
    ["invalid encoding", "/projects/%E0%A4%A/1/jobs", 400],
    ["a NUL", "/projects/{p}%00/1/jobs", 401],
    ["a longer version", "/projects/{p}/10/jobs", 404],
  ])("gives no access by a path with %s", async (_what, template, status) => {
    const path = template.replace("{p}", fixture.project).replace("{P}", fixture.project.toUpperCase())
    expect(await statusOf(path, BASE_DOMAIN)).toMatchObject({ status })
  })

  it("gives each key access to its own project only, also in upper case and encoded", async () => {
    await makeProject(fixture.client, OTHER, `${fixture.namespace}-other`)
    for (const project of [OTHER, OTHER.toUpperCase(), encodeURIComponent(`${OTHER}/../${fixture.project}`)])
      expect((await call(`/projects/${project}/1/jobs`, { host: BASE_DOMAIN })).status, project).toBe(401)
    // Part of a valid id may be encoded: the caller's own project stays the caller's own.
    const encoded = fixture.project.replace("-", "%2D")
    expect((await call(`/projects/${encoded}/1/jobs`, { host: BASE_DOMAIN })).status).toBe(200)
    expect((await call(`/PROJECTS/${encoded}/1/jobs`, { host: BASE_DOMAIN })).status).toBe(404)
  })

  it("adds no label with the project's id to the metrics", async () => {
    for (const path of ["/jobs", "/jobs/none", "/openapi.json", "/docs", "/docs/docs.js", "/absent"])
      await call(atPath(path), { method: "GET", host: BASE_DOMAIN })
    await call(atPath("/jobs"), { method: "DELETE", host: BASE_DOMAIN })
    const measured = await replica.measured()
    expect(measured).not.toContain(fixture.project)
    for (const route of ["/1/jobs", "/1/jobs/:id", "/1/openapi.json", "/1/docs", "/1/docs/docs.js"])
      expect(measured).toContain(`route="${route}"`)
  })
})

describe("the OpenAPI document", () => {
  const serversAt = async (path: string, by = call): Promise<{ url: string }[]> => {
    const response = await by(path, { key: "", host: BASE_DOMAIN })
    return ((await response.json()) as { servers: { url: string }[] }).servers
  }

  it("names the server of the address from which it was read", async () => {
    expect(await serversAt("/1/openapi.json")).toMatchObject([{ url: "/1" }, { url: "/projects/{project}/1" }])
    expect(await serversAt(atPath("/openapi.json"))).toEqual([{ url: atPath("") }])
    expect((await call("/projects/No%20Project/1/openapi.json", { host: BASE_DOMAIN })).status).toBe(404)
  })

  it("names the operations of organizations on the host without a project", async () => {
    const response = await call(atPath("/openapi.json"), { key: "", host: BASE_DOMAIN })
    const { paths } = (await response.json()) as { paths: Record<string, Record<string, { servers?: unknown }>> }
    expect(paths["/organizations"]?.["get"]?.servers).toEqual([{ url: "/1" }])
    expect(paths["/jobs"]?.["get"]?.servers).toBeUndefined()
  })

  it("has no servers on hosts of projects if the installation has no such hosts", async () => {
    expect(await serversAt("/1/openapi.json", callWithoutHosts)).toMatchObject([{ url: "/projects/{project}/1" }])
  })
})

describe("an installation without hosts of projects", () => {
  it("serves a project at its path on any host, and none by its host", async () => {
    for (const host of [BASE_DOMAIN, `${OTHER}.${BASE_DOMAIN}`, "localhost"])
      expect((await callWithoutHosts(atPath("/jobs"), { host })).status, host).toBe(200)
    expect((await callWithoutHosts("/1/jobs")).status).toBe(401)
  })

  it("has the account scope on every host", async () => {
    const problem = await problemIn(await callWithoutHosts("/1/organizations"))
    expect(problem.status).toBe(403)
  })
})
