import { readFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "vitest"
import { openApiDocument } from "./document.ts"
import type { Json } from "./http/json-schema.ts"

/**
 * A client of the last release works with this version: `released-openapi.json` is the golden document of that release. A
 * release replaces the file.
 */
const RELEASED = JSON.parse(
  readFileSync(join(import.meta.dirname, "../../test/facade/released-openapi.json"), "utf8"),
) as Json

/** Changes that break a client and are made nevertheless, each with its reason. */
const ACCEPTED = new Set<string>([])

type Node = Json & { properties?: Json; required?: string[]; items?: Json; anyOf?: Json[]; enum?: unknown[] }

/** Returns what breaks clients of the old document. */
function breaks(before: Json, after: Json): string[] {
  const found: string[] = []
  for (const [path, methods] of Object.entries(before["paths"] as Json)) {
    for (const [method, operation] of Object.entries(methods as Json)) {
      const name = `${method.toUpperCase()} ${path}`
      const now = ((after["paths"] as Json)[path] as Json | undefined)?.[method] as Json | undefined
      if (now === undefined) found.push(`${name} is removed`)
      else found.push(...operationBreaks(name, operation as Json, now, { before, after }))
    }
  }
  return found
}

interface Documents {
  before: Json
  after: Json
}

interface Parameter {
  name: string
  in: string
  required?: boolean
  schema?: Json
}

const ROLES: unknown[] = [undefined, "viewer", "developer", "admin"]

function operationBreaks(name: string, before: Json, after: Json, documents: Documents): string[] {
  const parametersOf = (operation: Json) => (operation["parameters"] ?? []) as Parameter[]
  const key = (one: Parameter) => `${one.in} ${one.name}`
  const [known, now] = [new Map(parametersOf(before).map((one) => [key(one), one])), parametersOf(after)]
  const names = now.map(key)
  const removed = [...known.keys()].filter((one) => !names.includes(one))
  const demanded = now.filter((one) => one.required === true && known.get(key(one))?.required !== true)
  const isHigher = ROLES.indexOf(after["x-required-role"]) > ROLES.indexOf(before["x-required-role"])
  const body = (operation: Json) => bodyOf(operation["requestBody"] as Json | undefined)
  const compared = new Comparison(documents)
  for (const one of now) {
    const schema = known.get(key(one))?.schema
    if (schema !== undefined) compared.request(`${name} ${key(one)}`, schema, one.schema ?? {})
  }
  compared.request(`${name} body`, body(before), body(after))
  for (const [status, response] of Object.entries(before["responses"] as Json)) {
    if (!status.startsWith("2")) continue
    const answer = (after["responses"] as Json)[status] as Json | undefined
    if (answer === undefined) compared.found.push(`${name} ${status} is removed`)
    else compared.response(`${name} ${status}`, bodyOf(response as Json), bodyOf(answer))
  }
  return [
    ...removed.map((one) => `${name}: the parameter ${one} is removed`),
    ...demanded.map((one) => `${name}: the parameter ${key(one)} is required`),
    ...(isHigher ? [`${name} needs a higher role`] : []),
    ...compared.found,
  ]
}

function bodyOf(part: Json | undefined): Json {
  const content = (part?.["content"] ?? {}) as Record<string, { schema: Json }>
  return Object.values(content)[0]?.schema ?? {}
}

/** Compares two schemas, part by part. */
class Comparison {
  readonly found: string[] = []
  readonly #documents: Documents

  constructor(documents: Documents) {
    this.#documents = documents
  }

  /** A client sends what the old schema allows: the new one must allow it. */
  request(at: string, before: Json, after: Json): void {
    const [old, now] = this.#both(before, after)
    const known = old.required ?? []
    for (const name of (now.required ?? []).filter((one) => !known.includes(one)))
      this.found.push(`${at}/${name} is required`)
    for (const value of old.enum ?? [])
      if (now.enum !== undefined && !now.enum.includes(value)) this.found.push(`${at}: the value ${value} is removed`)
    const types = [now["type"] ?? []].flat()
    for (const type of [old["type"] ?? []].flat())
      if (types.length > 0 && !types.includes(type) && !(type === "integer" && types.includes("number")))
        this.found.push(`${at}: the type ${type} is removed`)
    this.#parts(at, old, now, (...parts) => this.request(...parts))
  }

  /** A client reads what the old schema promises: the new one must promise it. */
  response(at: string, before: Json, after: Json): void {
    const [old, now] = this.#both(before, after)
    for (const name of old.required ?? [])
      if (!now.required?.includes(name)) this.found.push(`${at}/${name} may be absent`)
    const types = [old["type"]].flat()
    for (const type of [now["type"]].flat())
      if (old["type"] !== undefined && !types.includes(type)) this.found.push(`${at}: the type ${type} is new`)
    this.#parts(at, old, now, (...parts) => this.response(...parts))
  }

  #parts(at: string, old: Node, now: Node, compare: (at: string, before: Json, after: Json) => void): void {
    for (const [name, property] of Object.entries(old.properties ?? {})) {
      const counterpart = now.properties?.[name]
      if (counterpart === undefined) this.found.push(`${at}/${name} is removed`)
      else compare(`${at}/${name}`, property as Json, counterpart as Json)
    }
    if (old.items !== undefined && now.items !== undefined) compare(`${at}/[]`, old.items, now.items)
    const choices = now.anyOf ?? []
    for (const [index, choice] of (old.anyOf ?? []).entries()) {
      const counterpart = choices[index]
      if (counterpart === undefined) this.found.push(`${at}: choice ${index + 1} is removed`)
      else compare(`${at}/${index + 1}`, choice, counterpart)
    }
  }

  #both(before: Json, after: Json): [Node, Node] {
    return [resolved(before, this.#documents.before), resolved(after, this.#documents.after)]
  }
}

/** Returns a schema in place of its reference. A choice between one schema and null becomes that schema. */
function resolved(schema: Json, document: Json): Node {
  const reference = schema["$ref"]
  if (typeof reference === "string") {
    const schemas = (document["components"] as Record<string, Json>)["schemas"] as Record<string, Json>
    return resolved(schemas[reference.split("/").at(-1) ?? ""] ?? {}, document)
  }
  const choices = (schema["anyOf"] as Json[] | undefined) ?? []
  const [only, ...others] = choices.filter(({ type }) => type !== "null")
  if (only === undefined || others.length === choices.length - 1) return schema as Node
  if (others.length > 0) return { ...schema, anyOf: [only, ...others] }
  const inner = resolved(only, document)
  const types = inner["type"] === undefined ? {} : { type: [inner["type"], "null"].flat() }
  return { ...inner, ...types }
}

const current = (): Json => JSON.parse(JSON.stringify(openApiDocument(["aws", "gcp", "azure"]))) as Json

it("the API breaks no client of the last release", () => {
  expect(breaks(RELEASED, current()).filter((one) => !ACCEPTED.has(one))).toEqual([])
})

describe("a change that breaks clients", () => {
  const at = (document: Json, ...path: string[]): Json =>
    path.reduce<Json>((inside, key) => inside[key] as Json, document)
  const schema = (document: Json, name: string): Json => at(document, "components", "schemas", name)

  it.each<[string, (document: Json) => void, string]>([
    ["a removed operation", (d) => delete at(d, "paths", "/jobs")["get"], "GET /jobs is removed"],
    [
      "a removed field of a response",
      (d) => delete at(schema(d, "JobRecord"), "properties")["status"],
      "GET /jobs/{id} 200/status is removed",
    ],
    [
      "a field of a response that may be absent",
      (d) => Object.assign(schema(d, "KeyRecord"), { required: [] }),
      "GET /keys/{key_id} 200/id may be absent",
    ],
    [
      "a field of a response that may be null",
      (d) => Object.assign(at(schema(d, "JobRecord"), "properties", "image"), { type: ["string", "null"] }),
      "GET /jobs/{id} 200/image: the type null is new",
    ],
    [
      "a removed field of a nested component",
      (d) => delete at(schema(d, "Gpu"), "anyOf", "1", "properties")["vram"],
      "POST /jobs body/resources/gpu/2/vram is removed",
    ],
    [
      "a field of a request that is required",
      (d) => Object.assign(schema(d, "JobSubmission"), { required: ["image", "name"] }),
      "POST /jobs body/name is required",
    ],
    [
      "another type of a request's field",
      (d) => Object.assign(at(schema(d, "JobSubmission"), "properties", "maxRetries"), { type: "string" }),
      "POST /jobs body/maxRetries: the type integer is removed",
    ],
    [
      "a removed value of a parameter",
      (d) => {
        const parameters = at(d, "paths", "/jobs", "get")["parameters"] as { name: string; schema: Json }[]
        const status = parameters.filter(({ name }) => name === "status")
        for (const { schema } of status) (schema["enum"] as string[]).splice(0, 1)
      },
      "GET /jobs query status: the value queued is removed",
    ],
    [
      "a higher role",
      (d) => Object.assign(at(d, "paths", "/jobs", "get"), { "x-required-role": "admin" }),
      "GET /jobs needs a higher role",
    ],
  ])("is found: %s", (_, change, expected) => {
    const changed = current()
    change(changed)
    expect(breaks(current(), changed)).toContain(expected)
  })
})
