import { createHash } from "node:crypto"
import { Ajv2020 } from "ajv/dist/2020.js"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { caller, type Replica, startReplica, testWorld } from "./harness.ts"

const world = testWorld("facade-openapi")
let replica: Replica
const call = caller(() => replica, world)

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
let page: string

beforeAll(async () => {
  replica = await startReplica()
  document = (await (await call("/1/openapi.json", { key: "" })).json()) as Document
  operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method, path, operation })),
  )
  page = await (await call("/1/docs", { key: "" })).text()
})
afterAll(() => replica.close())

describe("GET /1/openapi.json", () => {
  it("has every endpoint of jobs, cronjobs, keys and connections, each under an id of its own", () => {
    const paths = ["/jobs", "/cronjobs", "/keys", "/connections"]
    expect(Object.keys(document.paths).map((path) => path.replace(/\{[^}]+\}/, "{}"))).toEqual(
      expect.arrayContaining([...paths, ...paths.map((path) => `${path}/{}`), "/jobs/{}/cancel"]),
    )
    const ids = operations.map(({ operation }) => operation.operationId)
    expect(new Set(ids).size).toBe(ids.length)
  })

  it("names the parameters of paths as the contract does", () => {
    const names = Object.keys(document.paths).flatMap((path) => path.match(/\{\w+\}/g) ?? [])
    expect([...new Set(names)].toSorted()).toEqual(
      ["{id}", "{key_id}", "{member_user_id}", "{name}", "{org_id}", "{project_id}"].toSorted(),
    )
    for (const { path, operation } of operations) {
      const declared = (operation.parameters ?? []).filter((parameter) => parameter.in === "path")
      expect(declared.map(({ name }) => `{${name}}`)).toEqual(path.match(/\{\w+\}/g) ?? [])
    }
    for (const path of ["/jobs/{id}/cancel", "/cronjobs/{name}", "/keys/{key_id}", "/connections/{name}"])
      expect(document.paths).toHaveProperty([path])
  })

  it("refers to nothing that it does not have", () => {
    const references = [...JSON.stringify(document).matchAll(/"#\/components\/(schemas|responses|headers)\/([^"]+)"/g)]
    expect(references.length).toBeGreaterThan(100)
    for (const [, kind, name = ""] of references)
      expect(document.components[kind as keyof Document["components"]]).toHaveProperty(name)
  })

  it("says of every operation with which problems it answers, each by its status", () => {
    for (const { operation } of operations) {
      const statuses = Object.keys(operation.responses)
      expect(statuses).toEqual(expect.arrayContaining(["400", "401", "403", "429", "500", "503"]))
      expect(statuses).not.toContain("default")
      if (operation.requestBody !== undefined) expect(statuses).toEqual(expect.arrayContaining(["413", "415"]))
    }
  })

  it("has examples that its own schemas take, in requests and answers", () => {
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
    "has an example for %s that the API takes",
    async (id) => {
      const found = operations.find(({ operation }) => operation.operationId === id)
      const body = found?.operation.requestBody?.content["application/json"]?.example
      const response = await call(`/1${found?.path}`, { body })
      expect(response.status, await response.text()).toBe(201)
    },
  )
})

describe("GET /1/docs", () => {
  it("is a page for everybody that loads nothing, runs nothing and may be styled by itself alone", async () => {
    const response = await call("/1/docs", { key: "" })
    expect([response.status, response.headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"])
    const [, style = ""] = /<style>([\s\S]*)<\/style>/.exec(page) ?? []
    const hash = createHash("sha256").update(style).digest("base64")
    expect(response.headers.get("content-security-policy")).toBe(
      `default-src 'none'; style-src 'sha256-${hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
    )
    expect(page).not.toMatch(/<script|<link|<img|<iframe|\ssrc=|\sstyle=|\son[a-z]+=|@import|url\(/)
  })

  it("shows every operation and every record, and its links lead somewhere", () => {
    for (const { method, path, operation } of operations) {
      expect(page).toContain(`<section class="operation" id="${operation.operationId}">`)
      expect(page).toContain(`<span class="method">${method}</span> <code>${path}</code>`)
    }
    for (const name of Object.keys(document.components.schemas)) expect(page).toContain(`id="schema-${name}"`)
    const targets = [...page.matchAll(/href="#([^"]+)"/g)].map(([, target]) => target)
    for (const target of new Set(targets)) expect(page).toContain(`id="${target}"`)
    const ids = [...page.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id)
    expect(new Set(ids).size).toBe(ids.length)
  })

  it("escapes what is no markup", () => {
    expect(page).toContain("https://&#60;project&#62;.&#60;domain&#62;/1")
    expect(page).not.toContain("<project>")
  })

  it("closes what it opens", () => {
    for (const tag of ["section", "table", "tr", "td", "th", "ul", "li", "pre", "code", "span", "a", "p", "h3", "h4"]) {
      const count = (text: string): number => page.split(text).length - 1
      expect(count(`<${tag}>`) + count(`<${tag} `), tag).toBe(count(`</${tag}>`))
    }
  })
})
