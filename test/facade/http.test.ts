import { connect } from "node:net"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import type { KeyCreated } from "../../src/api/resources/keys/schema.ts"
import { type ApiObject, declareResource } from "../../src/core/kube/resource.ts"
import { API_KEYS } from "../../src/core/resources.ts"
import { kubeConfig } from "../control-plane.ts"
import { deleteKey, makeKey } from "../harness/api-keys.ts"
import { BASE_DOMAIN, caller, created, problemIn } from "../harness/caller.ts"
import { ChaosProxy, status } from "../harness/chaos-proxy.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { jobsOf, makeProject, projectFixture, removeJob } from "../harness/facade-project.ts"

const fixture = projectFixture("facade-http")
let replica: Replica
const call = caller(() => replica, fixture)

beforeAll(async () => {
  replica = await startReplica()
})
afterAll(() => replica.close())
beforeEach(async () => {
  for (const { metadata } of await jobsOf(fixture)) await removeJob(fixture, metadata)
})

describe("the API on invalid bodies", () => {
  it.each([
    ["broken YAML", "image: [a\nname: b: c", "application/yaml", 400, /line 2, column/],
    ["broken JSON", '{"image": "a",\n "name": x}', "application/json", 400, /line 2, column 10/],
    ["truncated JSON", '{"image": "a"', "application/json", 400, /the text ends/],
    ["an empty body", "", "application/json", 400, /empty/],
    ["two YAML documents", "image: a\n---\nimage: b", "application/yaml", 400, /one document/],
    ["a YAML alias", "image: &x a\nname: *x", "application/yaml", 400, /aliases/],
    ["a YAML merge key", "<<: {image: a}", "application/yaml", 400, /merge/],
    ["a YAML tag", "image: !!str a", "application/yaml", 400, /tags/],
    [
      "a number with a leading zero",
      "image: a\nmaxRetries: 010",
      "application/yaml",
      400,
      /line 2, column 13: maxRetries: 010 is 8 for kubectl/,
    ],
    ["a duplicate YAML key", "image: a\nimage: b", "application/yaml", 400, /line 2.*duplicat/],
    ["a duplicate JSON key", '{"image":"a","image":"b"}', "application/json", 400, /duplicate/],
    ["YAML sent as JSON", "image: a", "application/json", 400, /not valid JSON/],
    [
      "deeply nested JSON",
      `{"image":"a","env":${"[".repeat(5000)}${"]".repeat(5000)}}`,
      "application/json",
      400,
      /deeper/,
    ],
    ["deeply nested YAML", "[".repeat(5000), "application/yaml", 400, /maxDepth|deeper/],
    ["form data", "image=a", "application/x-www-form-urlencoded", 415, /application\/yaml/],
    ["text", "image: a", "text/plain", 415, /application\/yaml/],
    ["another charset", '{"image":"a"}', "application/json; charset=latin1", 415, /UTF-8/],
    ["bytes that are not UTF-8", new Uint8Array([0x22, 0xff, 0x22]), "application/json", 400, /UTF-8/],
    ["a JSON string", '"image"', "application/json", 400, /must be an object/],
  ])("rejects a body with %s", async (_what, body, type, status, said) => {
    const response = await call("/1/jobs", { body, type, method: "POST" })
    expect(response.status).toBe(status)
    const { detail, errors } = await problemIn(response)
    expect([detail, ...errors.map((error) => error.detail)].join("\n")).toMatch(said)
    expect(await jobsOf(fixture)).toEqual([])
  })

  it("rejects a compressed body with 415", async () => {
    const response = await call("/1/jobs", { body: { image: "a" }, headers: { "Content-Encoding": "gzip" } })
    expect(response.status).toBe(415)
    expect(await jobsOf(fixture)).toEqual([])
  })

  it("lists several faults of a YAML body at once", async () => {
    const body = "image: !t a\nenv: {A: 010}\nlabels: &l {}\ntags: *l\n1: x"
    const { errors } = await problemIn(await call("/1/jobs", { body, type: "application/yaml" }))
    expect(errors.map(({ detail }) => /^line (\d+)/.exec(detail)?.[1])).toEqual(["1", "2", "3", "4", "5"])
  })

  it("accepts a body of 128 KiB, and rejects a body of one byte more with 413", async () => {
    const bodyOf = (length: number): string => JSON.stringify({ image: "a" }).padEnd(length, " ")
    const limit = 128 * 1024
    await created(await call("/1/jobs", { body: bodyOf(limit) }))
    const response = await call("/1/jobs", { body: bodyOf(limit + 1) })
    expect(response.status).toBe(413)
    expect(await jobsOf(fixture)).toHaveLength(1)
  })

  it("rejects a body of 5 MB with 413 and creates no job", async () => {
    const body = JSON.stringify({ image: "a", args: ["x".repeat(5_000_000)] })
    const response = await call("/1/jobs", { body })
    expect(response.status).toBe(413)
    expect((await problemIn(response)).detail).toContain("131072 bytes")
    expect(await jobsOf(fixture)).toEqual([])
  })

  it("answers 413 before the end of a large body, and then closes the connection", async () => {
    // This client announces 5 MB, sends little, and continues only if it must.
    expect(await rawPost(Buffer.alloc(1000, "x"), ["Content-Length: 5000000"])).toMatch(/^HTTP\/1.1 413 /)
    // This client never announces a length.
    const chunk = `10000\r\n${"x".repeat(0x10000)}\r\n`
    expect(await rawPost(Buffer.from(chunk.repeat(6)), ["Transfer-Encoding: chunked"])).toMatch(/^HTTP\/1.1 413 /)
  })
})

/** Sends a POST whose body may be incomplete; resolves with everything that arrives before the server closes. */
function rawPost(body: Uint8Array, headers: string[]): Promise<string> {
  const head = [
    "POST /1/jobs HTTP/1.1",
    `Host: ${fixture.project}.${BASE_DOMAIN}`,
    "Content-Type: application/json",
    `X-Service-Api-Key: ${fixture.keys.admin}`,
    "X-Request-Id: raw",
    ...headers,
  ]
  return raw(head, body)
}

/** Sends header lines and a body; resolves with everything that arrives before the server closes. */
function raw(head: readonly string[], body: Uint8Array | string): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(replica.port, "127.0.0.1")
    let answer = ""
    socket.setEncoding("utf8").on("data", (text: string) => {
      answer += text
    })
    // Later writes may fail on a closed connection. Only the data before that counts.
    socket.on("error", () => undefined).on("close", () => resolve(answer))
    socket.write(`${head.join("\r\n")}\r\n\r\n`)
    socket.write(body)
  })
}

describe("authentication", () => {
  it("accepts the API key in a header name of any case (contract, Authentication 1)", async () => {
    const headers = { "x-SERVICE-api-KEY": fixture.keys.viewer }
    expect((await call("/1/jobs", { key: "", headers })).status).toBe(200)
  })

  it.each([
    ["no key", () => ""],
    ["a malformed key", () => "hunter2"],
    ["an unknown key", () => `berth_abcdefgh1234_${"A".repeat(43)}`],
    ["a known key id with another secret", () => `${fixture.keys.admin.slice(0, -43)}${"A".repeat(43)}`],
  ])("returns 401 with WWW-Authenticate for %s", async (_what, key) => {
    const response = await call("/1/jobs", { key: key() })
    expect(response.status).toBe(401)
    expect(response.headers.get("www-authenticate")).toContain("X-Service-Api-Key")
    await problemIn(response)
  })

  it("returns the same 401 for a key of another project, an unknown project and a host without a project", async () => {
    const other = `p-${fixture.namespace.slice(-8)}-o`
    await makeProject(fixture.client, other, "default")
    try {
      const details: string[] = []
      const hosts = [
        `${other}.${BASE_DOMAIN}`,
        `unknown.${BASE_DOMAIN}`,
        `a.b.${BASE_DOMAIN}`,
        "localhost",
        "127.0.0.1",
      ]
      for (const host of hosts) {
        const response = await call("/1/jobs", { host })
        expect(response.status).toBe(401)
        details.push((await problemIn(response)).detail)
      }
      expect(new Set(details).size).toBe(1)
    } finally {
      await fixture.client.delete(
        { ...API_KEYS, plural: "projects", kind: "Project", namespaced: false },
        { name: other },
      )
    }
  })

  it("serves the default project on hosts without a project label", async () => {
    const local = await startReplica({ settings: { defaultProject: fixture.project } })
    try {
      const callLocal = caller(() => local, fixture)
      for (const host of ["localhost", "127.0.0.1", BASE_DOMAIN]) {
        expect((await callLocal("/1/jobs", { host })).status).toBe(200)
      }
      expect((await callLocal("/1/jobs", { host: `unknown.${BASE_DOMAIN}` })).status).toBe(401)
    } finally {
      await local.close()
    }
  })

  it("accepts a project's host in any case and with a final dot", async () => {
    for (const host of [`${fixture.project.toUpperCase()}.Berth.TEST`, `${fixture.project}.${BASE_DOMAIN}.`]) {
      expect((await call("/1/jobs", { host })).status).toBe(200)
    }
  })

  it("returns 400 for a key and a token together, and 401 for a token alone", async () => {
    const headers = { Authorization: "Bearer x" }
    expect((await call("/1/jobs", { headers })).status).toBe(400)
    expect((await call("/1/jobs", { headers, key: "" })).status).toBe(401)
  })

  it("accepts a key beside a proxy's Authorization header, and returns 401 for that header alone", async () => {
    const headers = { Authorization: "Basic cHJveHk6c2VjcmV0" }
    expect((await call("/1/jobs", { headers })).status).toBe(200)
    expect((await call("/1/jobs", { headers, key: "" })).status).toBe(401)
  })

  it("rejects an expired key", async () => {
    const soon = new Date(Date.now() + 86_400_000).toISOString()
    const past = new Date(Date.now() - 1000).toISOString()
    const good = await makeKey(fixture.client, fixture.namespace, "viewer", { expiresAt: soon })
    const expired = await makeKey(fixture.client, fixture.namespace, "viewer", { expiresAt: past })
    expect((await call("/1/jobs", { key: good })).status).toBe(200)
    expect((await call("/1/jobs", { key: expired })).status).toBe(401)
  })

  it("accepts a key immediately after its creation", async () => {
    for (let round = 0; round < 5; round++) {
      const key = await makeKey(fixture.client, fixture.namespace, "viewer")
      expect((await call("/1/jobs", { key })).status).toBe(200)
    }
  })

  it("rejects a revoked key at once with a healthy watch, and accepts the next key of the same name", async () => {
    const key = await makeKey(fixture.client, fixture.namespace, "viewer", { name: "short-lived" })
    expect((await call("/1/jobs", { key })).status).toBe(200)
    const ref = { namespace: fixture.namespace, name: "short-lived" }
    await deleteKey(fixture.client, ref)
    await eventually(() => expect(replica.apiKeys.store.get(ref)).toBeUndefined())
    expect((await call("/1/jobs", { key })).status).toBe(401)
    const next = await makeKey(fixture.client, fixture.namespace, "viewer", { name: "short-lived" })
    expect((await call("/1/jobs", { key: next })).status).toBe(200)
    expect((await call("/1/jobs", { key })).status).toBe(401)
  })

  it("applies a change of a key's role", async () => {
    const key = await makeKey(fixture.client, fixture.namespace, "viewer", { name: "promoted" })
    expect((await call("/1/jobs", { key, body: { image: "a" } })).status).toBe(403)
    const merge = { spec: { role: "developer" } }
    await fixture.client.patch(API_KEYS, { namespace: fixture.namespace, name: "promoted" }, { merge })
    await eventually(async () => expect((await call("/1/jobs", { key, body: { image: "a" } })).status).toBe(201))
  })
})

describe("a façade with a broken connection to the API server", () => {
  it("rejects a revoked key although the watch delivers no event", async () => {
    const proxy = await ChaosProxy.start(kubeConfig())
    const cut = await startReplica({ kubeConfig: proxy.kubeConfig() })
    try {
      const callCut = caller(() => cut, fixture)
      const key = await makeKey(fixture.client, fixture.namespace, "viewer", { name: "stalled" })
      expect((await callCut("/1/jobs", { key })).status).toBe(200)
      await stallWatches(proxy)
      await fixture.client.delete(API_KEYS, { namespace: fixture.namespace, name: "stalled" })
      await eventually(async () => expect((await callCut("/1/jobs", { key })).status).toBe(401))
      expect(cut.apiKeys.store.get({ namespace: fixture.namespace, name: "stalled" })).toBeDefined()
    } finally {
      await cut.close()
      await proxy.close()
    }
  })

  it("applies another replica's role change and deletion of a key although its own watch delivers no event", async () => {
    const proxy = await ChaosProxy.start(kubeConfig())
    const deaf = await startReplica({ kubeConfig: proxy.kubeConfig() })
    try {
      const callDeaf = caller(() => deaf, fixture)
      const made = await call("/1/keys", { body: { name: "two-replicas", role: "developer" } })
      const { id, value: key } = (await made.json()) as KeyCreated
      const submitted = async (): Promise<number> => (await callDeaf("/1/jobs", { key, body: { image: "a" } })).status
      expect(await submitted()).toBe(201)
      await stallWatches(proxy)
      expect((await call(`/1/keys/${id}`, { method: "PATCH", body: { role: "viewer" } })).status).toBe(200)
      await eventually(async () => expect(await submitted()).toBe(403))
      expect((await call(`/1/keys/${id}`, { method: "DELETE" })).status).toBe(204)
      await eventually(async () => expect(await submitted()).toBe(401))
      expect(deaf.apiKeys.store.getByUid(id)?.spec.role).toBe("developer")
    } finally {
      await deaf.close()
      await proxy.close()
    }
  })

  it("returns 503 with Retry-After for a job id if the stale cache can't decide", async () => {
    const proxy = await ChaosProxy.start(kubeConfig())
    const cut = await startReplica({ kubeConfig: proxy.kubeConfig() })
    try {
      const callCut = caller(() => cut, fixture)
      await stallWatches(proxy)
      const { job_id, name } = await created(await call("/1/jobs", { body: { image: "a" } }))
      const response = await callCut(`/1/jobs/${job_id}`)
      expect(response.status).toBe(503)
      expect(response.headers.get("retry-after")).toBe("1")
      // A name needs only one live read.
      expect((await callCut(`/1/jobs/${name}`)).status).toBe(200)
    } finally {
      await cut.close()
      await proxy.close()
    }
  })

  it.each<[string, Record<string, string>]>([
    ["with an Idempotency-Key", { "Idempotency-Key": "etcd" }],
    ["without an Idempotency-Key", {}],
  ])("returns 503 for a POST %s while etcd is down, and creates the job later", async (_what, headers) => {
    const proxy = await ChaosProxy.start(kubeConfig())
    const cut = await startReplica({ kubeConfig: proxy.kubeConfig() })
    try {
      const submit = () => caller(() => cut, fixture)("/1/jobs", { body: { image: "a" }, headers })
      proxy.inject("list", { code: 500, body: status(500, "InternalError") })
      const response = await submit()
      expect(response.status).toBe(503)
      expect(response.headers.get("retry-after")).toMatch(/^\d+$/)
      expect((await problemIn(response)).detail).toContain("may or may not have happened")
      await created(await submit())
    } finally {
      await cut.close()
      await proxy.close()
    }
  })

  it("returns 503 while the API server is unavailable, and stays ready", async () => {
    const proxy = await ChaosProxy.start(kubeConfig())
    const cut = await startReplica({ kubeConfig: proxy.kubeConfig() })
    await proxy.close()
    try {
      const callCut = caller(() => cut, fixture)
      for (const path of ["/1/jobs", "/1/jobs/x"]) {
        const response = await callCut(path)
        expect(response.status).toBe(503)
        expect(response.headers.get("retry-after")).toMatch(/^\d+$/)
        expect((await problemIn(response)).detail).not.toMatch(/127\.0\.0\.1|ECONN/)
      }
      expect((await callCut("/readyz", { key: "" })).status).toBe(200)
    } finally {
      await cut.close()
    }
  })
})

/** Silences the watches of a replica's eleven caches, after all are open: a later one would still deliver. */
async function stallWatches(proxy: ChaosProxy): Promise<void> {
  await eventually(() => expect(proxy.openWatches).toBe(12))
  proxy.stall()
}

describe("roles (contract, Endpoints)", () => {
  it.each([
    ["viewer", "GET", "/1/jobs", 200],
    ["viewer", "POST", "/1/jobs", 403],
    ["viewer", "GET", "/1/jobs/unknown", 404],
    ["viewer", "GET", "/1/jobs/unknown/logs", 404],
    ["viewer", "POST", "/1/jobs/unknown/cancel", 403],
    ["developer", "POST", "/1/jobs", 201],
    ["developer", "POST", "/1/jobs/unknown/cancel", 404],
    ["admin", "POST", "/1/jobs", 201],
  ] as const)("gives a %s who calls %s %s the status %i", async (role, method, path, status) => {
    const body = method === "POST" && path === "/1/jobs" ? { image: "a" } : undefined
    const response = await call(path, { key: fixture.keys[role], method, body })
    expect(response.status).toBe(status)
  })
})

describe("HTTP", () => {
  it("returns 405 with Allow for other methods, and the same Allow for OPTIONS", async () => {
    const table = [
      ["/1/jobs", "GET, HEAD, POST, OPTIONS", "DELETE"],
      ["/1/jobs/x", "GET, HEAD, PATCH, OPTIONS", "PUT"],
      ["/1/jobs/x/cancel", "POST, OPTIONS", "GET"],
      ["/1/jobs/x/logs", "GET, HEAD, OPTIONS", "PUT"],
      ["/1/openapi.json", "GET, HEAD, OPTIONS", "POST"],
      ["/1/docs", "GET, HEAD, OPTIONS", "DELETE"],
    ] as const
    for (const [path, allow, method] of table) {
      const refused = await call(path, { method })
      expect([refused.status, refused.headers.get("allow")]).toEqual([405, allow])
      await problemIn(refused)
      const options = await call(path, { method: "OPTIONS", key: "" })
      expect([options.status, options.headers.get("allow")]).toEqual([204, allow])
    }
  })

  it("redirects a browser from / to the API reference", async () => {
    const response = await call("/", { key: "", headers: { Accept: "text/html,*/*;q=0.8" }, redirect: "manual" })
    expect([response.status, response.headers.get("location")]).toEqual([302, "/1/docs"])
  })

  it("ends every JSON response with a newline, the document and problems included", async () => {
    for (const path of ["/1/jobs", "/1/openapi.json", "/1/jobs/absent"])
      expect(await (await call(path)).text()).toMatch(/\}\n$/)
  })

  it("returns a 404 problem for a path in other capitals", async () => {
    for (const path of ["/1/JOBS", "/1/Jobs", "/1/Whoami", "/1/openapi.JSON", "/Healthz", "/PROJECTS/a/1/jobs"])
      expect([path, (await call(path)).status]).toEqual([path, 404])
    expect((await call("/1/jobs")).status).toBe(200)
  })

  it("returns a 404 problem for unknown paths, and a 400 problem for a path with invalid encoding", async () => {
    for (const path of ["/", "/jobs", "/1", "/1/nothing", "/2/jobs"]) {
      const response = await call(path)
      expect(response.status).toBe(404)
      await problemIn(response)
    }
    expect((await call("/1/jobs/%zz")).status).toBe(400)
  })

  it.each([
    ["HTTP/1.0 without a Host", "1.0", [], /has no host/],
    ["an empty Host", "1.1", ["Host: "], /has no host/],
    ["a Host with only a port", "1.1", ["Host: :80"], /has no host/],
    ["two Hosts", "1.1", ["Host: a.example", "Host: b.example"], /2 Host headers/],
    ["the same Host twice", "1.1", ["Host: a.example", "host: a.example"], /2 Host headers/],
  ])("returns a 400 problem for %s", async (_what, version, hosts, said) => {
    for (const path of ["/1/jobs", "/1/projects", "/agent/v1/hello"]) {
      const head = [
        `GET ${path} HTTP/${version}`,
        ...hosts,
        `X-Service-Api-Key: ${fixture.keys.admin}`,
        "Connection: close",
      ]
      const answer = await raw(head, "")
      expect(answer, path).toMatch(/^HTTP\/1\.1 400 /)
      expect(answer).toContain("application/problem+json")
      expect(answer).toMatch(said)
    }
  })

  it("accepts HTTP/1.0 with a Host, and serves its health without a Host", async () => {
    const health = await raw(["GET /livez HTTP/1.0"], "")
    expect(health).toMatch(/^HTTP\/1\.1 200 /)
    const host = `Host: ${fixture.project}.${BASE_DOMAIN}`
    const listed = await raw(["GET /1/jobs HTTP/1.0", host, `X-Service-Api-Key: ${fixture.keys.admin}`], "")
    expect(listed).toMatch(/^HTTP\/1\.1 200 /)
  })

  it("answers HEAD like GET, without a body", async () => {
    const response = await call("/1/jobs", { method: "HEAD" })
    expect([response.status, await response.text()]).toEqual([200, ""])
    expect((await call("/1/jobs/unknown", { method: "HEAD" })).status).toBe(404)
  })

  it("keeps and logs a valid X-Request-Id of the caller, and generates one otherwise", async () => {
    const given = await call("/1/jobs/unknown", { headers: { "X-Request-Id": "my-id.1" } })
    expect((await problemIn(given)).instance).toBe("my-id.1")
    const made = await call("/1/jobs/unknown", { headers: { "X-Request-Id": 'bad id "' } })
    const { instance } = await problemIn(made)
    expect(instance).toMatch(/^[0-9a-f-]{36}$/)
    expect(replica.logged()).toContain('"id":"my-id.1"')
    expect(replica.logged()).toContain(`"id":"${instance}"`)
  })

  it("sends helmet's headers and no X-Powered-By", async () => {
    const { headers } = await call("/1/jobs")
    expect(headers.get("x-content-type-options")).toBe("nosniff")
    expect(headers.get("x-powered-by")).toBeNull()
  })

  it("never logs a key, a token or a body", async () => {
    const secret = "s3cr3t-value-of-a-variable"
    await created(await call("/1/jobs", { body: { image: "a", env: { PASSWORD: secret } } }))
    await call("/1/jobs", { body: { image: 1, env: { PASSWORD: secret } } })
    await call("/1/jobs", { body: `{"image": "a", "env": {"P": "${secret}"` })
    await call("/1/jobs", { key: `${fixture.keys.admin}x` })
    await call("/1/jobs", { key: "", headers: { Authorization: "Bearer tok3n-of-a-person" } })
    expect(replica.logged()).toContain('"url":"/1/jobs"')
    for (const value of [...Object.values(fixture.keys), secret, "tok3n-of-a-person"]) {
      expect(replica.logged()).not.toContain(value)
    }
  })

  it("limits requests per principal, not per address, and announces the limit (draft 8)", async () => {
    const limited = await startReplica({ settings: { requestsPerMinute: 3 } })
    try {
      const callLimited = caller(() => limited, fixture)
      const answers = []
      for (let count = 0; count < 4; count++) answers.push(await callLimited("/1/jobs"))
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 429])
      const [first, , , last] = answers
      expect(first?.headers.get("ratelimit-policy")).toContain("q=3; w=60")
      expect(first?.headers.get("ratelimit")).toContain("r=2")
      expect(Number(last?.headers.get("retry-after"))).toBeGreaterThan(0)
      expect(last && (await problemIn(last)).type).toMatch(/rate-limited$/)
      expect((await callLimited("/1/jobs", { key: fixture.keys.viewer })).status).toBe(200)
    } finally {
      await limited.close()
    }
  })

  it("serves the agents' gateway without API keys", async () => {
    const response = await call("/agent/v1/hello", { method: "POST", key: "" })
    expect(await response.json()).toEqual({ hello: "agent" })
  })
})

describe("endpoints for the platform", () => {
  it("returns 200 on /livez, /readyz and /healthz without a key, on any host", async () => {
    for (const path of ["/livez", "/readyz", "/healthz"]) {
      const response = await call(path, { key: "", host: "10.0.0.1.example" })
      expect([response.status, await response.text()]).toEqual([200, "ok\n"])
    }
    expect(await (await call("/readyz?verbose", { key: "" })).text()).toBe("[+] caches: ok\n[+] shutdown: ok\nok\n")
  })

  it("measures requests by route, and serves no metrics on the API's port", async () => {
    await call("/1/jobs/some-name")
    expect((await call("/metrics", { key: "" })).status).toBe(404)
    const text = await replica.measured()
    const count = /^http_request_duration_seconds_count\{.*method="GET",route="\/1\/jobs\/:id",status="404"\} \d+$/m
    expect(count.test(text)).toBe(true)
    expect(text).not.toContain("some-name")
  })

  it("publishes OpenAPI 3.1", async () => {
    const document = (await (await call("/1/openapi.json", { key: "" })).json()) as { openapi: string; paths: object }
    expect(document.openapi).toBe("3.1.0")
    expect(JSON.stringify(document)).not.toContain("x-berth")
  })
})

describe("a rule that only the API server checks", () => {
  interface Policy extends ApiObject {
    spec: object
  }
  const admission = { group: "admissionregistration.k8s.io", version: "v1", namespaced: false }
  const policies = declareResource<Policy>({
    ...admission,
    kind: "ValidatingAdmissionPolicy",
    plural: "validatingadmissionpolicies",
  })
  const bindings = declareResource<Policy>({
    ...admission,
    kind: "ValidatingAdmissionPolicyBinding",
    plural: "validatingadmissionpolicybindings",
  })

  it("returns a 400 with the API server's message, and creates no object", async () => {
    const name = `no-latest-${fixture.namespace}`
    const rule = { apiGroups: ["berth.dev"], apiVersions: ["*"], operations: ["CREATE"], resources: ["jobs"] }
    await fixture.client.create(policies, {
      metadata: { name },
      spec: {
        matchConstraints: { resourceRules: [rule] },
        validations: [
          { expression: "!object.spec.image.endsWith(':latest')", message: "pin the image", reason: "Invalid" },
        ],
      },
    })
    const matchResources = { namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": fixture.namespace } } }
    const spec = { policyName: name, validationActions: ["Deny"], matchResources }
    await fixture.client.create(bindings, { metadata: { name }, spec })
    try {
      // The API server applies policies a moment after their creation.
      const attempt = async (): Promise<string> => {
        const response = await call("/1/jobs", { body: { name: "latest", image: "a:latest" } })
        const text = await response.text()
        if (response.status === 201) await removeJob(fixture, { namespace: fixture.namespace, name: "latest" })
        return `${response.status} ${text}`
      }
      await eventually(async () => expect(await attempt()).toMatch(/^400 .*pin the image/))
      expect(await jobsOf(fixture)).toEqual([])
    } finally {
      await fixture.client.delete(bindings, { name })
      await fixture.client.delete(policies, { name })
    }
  })
})
