import { Ajv2020 } from "ajv/dist/2020.js"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { caller } from "../harness/caller.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"

const fixture = projectFixture("facade-openapi")
let replica: Replica
const call = caller(() => replica, fixture)

interface Operation {
  operationId: string
  parameters?: { name: string; in: string }[]
  requestBody?: { content: Record<string, { example?: object }> }
  responses: Record<string, { content?: Record<string, { schema: { $ref?: string }; example?: object }> }>
}

interface Document {
  paths: Record<string, Record<string, Operation>>
  components: Record<"schemas" | "responses" | "headers", Record<string, object>>
}

let document: Document
let operations: { method: string; path: string; operation: Operation }[]

beforeAll(async () => {
  replica = await startReplica()
  document = (await (await call("/1/openapi.json", { key: "" })).json()) as Document
  operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method, path, operation })),
  )
})
afterAll(() => replica.close())

describe("GET /1/openapi.json", () => {
  it("lists every endpoint of jobs, cronjobs, arrays, keys and connections, each with an id of its own", () => {
    const paths = ["/jobs", "/cronjobs", "/arrays", "/keys", "/connections"]
    expect(Object.keys(document.paths).map((path) => path.replace(/\{[^}]+\}/, "{}"))).toEqual(
      expect.arrayContaining([...paths, ...paths.map((path) => `${path}/{}`), "/jobs/{}/cancel"]),
    )
    const ids = operations.map(({ operation }) => operation.operationId)
    expect(new Set(ids).size).toBe(ids.length)
  })

  it("names path parameters like the contract", () => {
    const names = Object.keys(document.paths).flatMap((path) => path.match(/\{\w+\}/g) ?? [])
    expect([...new Set(names)].toSorted()).toEqual(
      [
        ...["{id}", "{key_id}", "{launch}", "{member_user_id}", "{name}", "{org_id}", "{project_id}", "{sha256}"],
        "{session_id}",
      ].toSorted(),
    )
    for (const { path, operation } of operations) {
      const declared = (operation.parameters ?? []).filter((parameter) => parameter.in === "path")
      expect(declared.map(({ name }) => `{${name}}`)).toEqual(path.match(/\{\w+\}/g) ?? [])
    }
    for (const path of ["/jobs/{id}/cancel", "/cronjobs/{name}", "/keys/{key_id}", "/connections/{name}"])
      expect(document.paths).toHaveProperty([path])
  })

  it("has no reference to a missing part of the document", () => {
    const references = [...JSON.stringify(document).matchAll(/"#\/components\/(schemas|responses|headers)\/([^"]+)"/g)]
    expect(references.length).toBeGreaterThan(100)
    for (const [, kind, name = ""] of references)
      expect(document.components[kind as keyof Document["components"]]).toHaveProperty(name)
  })

  it("lists the problems of every operation, by status", () => {
    for (const { operation } of operations) {
      const statuses = Object.keys(operation.responses)
      expect(statuses).toEqual(expect.arrayContaining(["400", "401", "403", "429", "500", "503"]))
      expect(statuses).not.toContain("default")
      if (operation.requestBody !== undefined) expect(statuses).toEqual(expect.arrayContaining(["413", "415"]))
    }
  })

  it("has examples that match its own schemas, in requests and responses", () => {
    const ajv = new Ajv2020({ strict: false, validateFormats: false, discriminator: false })
    ajv.addSchema({ $id: "openapi", components: document.components })
    let seen = 0
    for (const { operation } of operations) {
      const contents = [operation.requestBody, ...Object.values(operation.responses)].flatMap((part) =>
        Object.values(part?.content ?? {}),
      )
      for (const { schema, example } of contents as { schema: { $ref?: string }; example?: object }[]) {
        if (example === undefined) continue
        const isValid = ajv.compile({ $ref: `openapi${schema.$ref}` })
        expect(isValid(example), `${operation.operationId}: ${ajv.errorsText(isValid.errors)}`).toBe(true)
        seen++
      }
    }
    expect(seen).toBeGreaterThanOrEqual(10)
  })

  it.each(["createJob", "createCronJob", "createKey", "createConnection"])(
    "has an example for %s that the API accepts",
    async (id) => {
      const found = operations.find(({ operation }) => operation.operationId === id)
      const body = found?.operation.requestBody?.content["application/json"]?.example
      const response = await call(`/1${found?.path}`, { body })
      expect(response.status, await response.text()).toBe(201)
    },
  )
})

describe("GET /1/docs", () => {
  it("serves the reference without a key, with scripts and styles from this host only", async () => {
    const response = await call("/1/docs", { key: "" })
    expect([response.status, response.headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"])
    const policy = response.headers.get("content-security-policy") ?? ""
    expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'")
    expect(policy).not.toMatch(/unsafe|https?:|\*/)
    expect(await response.text()).toMatch(/<noscript>[\s\S]*href="\/1\/openapi.json"[\s\S]*<\/noscript>/)
  })

  it("serves every asset of the page, with the right type and compressed", async () => {
    const page = await (await call("/1/docs", { key: "" })).text()
    const assets = [...page.matchAll(/"(\/1\/docs\/[^"]+)"/g)].map(([, path = ""]) => path)
    expect(assets).toHaveLength(4)
    for (const asset of assets) {
      const response = await call(asset, { key: "" })
      expect([response.status, response.headers.get("content-encoding")]).toEqual([200, "gzip"])
      expect(response.headers.get("content-type")).toMatch(asset.endsWith(".css") ? /^text\/css/ : /^text\/javascript/)
      expect((await response.text()).length).toBeGreaterThan(100)
    }
  })

  it("returns 304 for the ETag of an asset, and its plain content to a client without gzip", async () => {
    const plain = await call("/1/docs/docs.js", { key: "", headers: { "Accept-Encoding": "identity" } })
    expect([plain.status, plain.headers.get("content-encoding")]).toEqual([200, null])
    expect(await plain.text()).toContain("SwaggerUIBundle(")
    const tag = plain.headers.get("etag") ?? ""
    const again = await call("/1/docs/docs.js", { key: "", headers: { "If-None-Match": tag } })
    expect([again.status, await again.text()]).toEqual([304, ""])
    expect((await call("/1/docs/absent.js", { key: "" })).status).toBe(404)
  })
})
