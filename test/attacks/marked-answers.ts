import { createServer, type IncomingHttpHeaders, type IncomingMessage, request, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { text } from "node:stream/consumers"
import DOCUMENT from "../facade/golden/openapi.json" with { type: "json" }

/** Texts that stand before and after each string of an answer: a user has written them into every field. */
export interface Mark {
  before: string
  after: string
}

interface Schema {
  $ref?: string
  type?: string | string[]
  enum?: unknown[]
  const?: unknown
  format?: string
  writeOnly?: boolean
  properties?: Record<string, Schema>
  additionalProperties?: Schema | boolean
  patternProperties?: Record<string, Schema>
  items?: Schema
  anyOf?: Schema[]
  oneOf?: Schema[]
  allOf?: Schema[]
}

interface Content {
  content?: Record<string, { schema?: Schema }>
}

/** Proxy in front of a façade that marks the strings of all its answers, and takes the marks off its requests again. */
export interface MarkingProxy {
  url: string
  /** Places of the API description with a marked string so far, such as `JobRecord.env.*`. */
  readonly marked: ReadonlySet<string>
  close: () => Promise<void>
}

/**
 * Places of strings that can have no text of a user. They are times, quantities, lists of indexes, hashes, schedules and ids,
 * which clients parse or compare. Validation refuses all else, or Berth makes them.
 */
const PARSED =
  /(_at|_time|indexes|\.(from|to|time|vram|memory|disk|size|sha256|cron_spec|pointer|month|(project|organization)_?[iI]d)|^GpuOutput|^(Project|Organization)Record\.id)$/

/** Events of `GET /events`, with the component of their data. */
const EVENTS: Record<string, string> = {
  job: "JobRecord",
  cronjob: "CronJobRecord",
  array: "ArrayRecord",
  connection: "ConnectionRecord",
}

const component = (name: string): Schema => ({ $ref: `#/components/schemas/${name}` })

/** Schema without a reference, and its place from the component that has it. */
interface Variant {
  schema: Schema
  place: string
}

/** Returns what a reference names. */
function resolved(schema: Schema, place: string): Variant {
  if (schema.$ref === undefined) return { schema, place }
  const path = schema.$ref.slice(2).split("/")
  const found = path.reduce<unknown>((at, part) => (at as Record<string, unknown>)[part], DOCUMENT)
  return resolved(found as Schema, path.at(-1) ?? place)
}

/** Returns the schema and all its alternatives, without references. */
function variantsOf(of: Schema, at: string): readonly Variant[] {
  const { schema, place } = resolved(of, at)
  const inner = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])]
  return [{ schema, place }, ...inner.flatMap((each) => variantsOf(each, place))]
}

const mapOf = ({ additionalProperties, patternProperties = {} }: Schema): Schema[] => [
  ...(typeof additionalProperties === "object" ? [additionalProperties] : []),
  ...Object.values(patternProperties),
]

/** Returns the schemas of properties, of the values of a map, and of items. */
const insideOf = ({ schema, place }: Variant): Variant[] => [
  ...Object.entries(schema.properties ?? {}).map(([name, inner]) => ({ schema: inner, place: `${place}.${name}` })),
  ...mapOf(schema).map((inner) => ({ schema: inner, place: `${place}.*` })),
  ...(schema.items === undefined ? [] : [{ schema: schema.items, place }]),
]

/** Returns true for a string that may have a text of a user. */
const isText = ({ schema, place }: Variant): boolean =>
  [schema.type].flat().includes("string") &&
  schema.enum === undefined &&
  schema.const === undefined &&
  !PARSED.test(place)

function answersOf(path: object, methods: readonly string[]): Schema[] {
  const operations = Object.entries(path as Record<string, { responses: Record<string, Schema> }>)
  return operations.flatMap(([method, { responses }]) => (methods.includes(method) ? Object.values(responses) : []))
}

/** Returns the places of a user's text in the answers of the API. @param methods of the operations, in lower case */
export function placesOfText(methods: readonly string[]): Set<string> {
  const found = new Set<string>()
  const seen = new Set<Schema>()
  const look = (of: Schema, at: string): void => {
    for (const variant of variantsOf(of, at)) {
      if (isText(variant)) found.add(variant.place)
      if (seen.has(variant.schema)) continue
      seen.add(variant.schema)
      for (const inner of insideOf(variant)) look(inner.schema, inner.place)
    }
  }
  for (const answer of Object.values(DOCUMENT.paths).flatMap((path) => answersOf(path, methods)))
    for (const { schema } of Object.values((resolved(answer, "").schema as Content).content ?? {}))
      if (schema !== undefined) look(schema, "")
  found.delete("")
  return found
}

/** Returns a value of a schema with all texts that it can have; undefined if it can have none. */
function filled(of: Schema, at: string, above: readonly string[] = []): unknown {
  for (const variant of variantsOf(of, at)) {
    const value = above.includes(variant.place) ? undefined : filledAs(variant, above)
    if (value !== undefined) return value
  }
  return undefined
}

function filledAs({ schema, place }: Variant, above: readonly string[]): unknown {
  if (isText({ schema, place })) return "text"
  const inside = [...above, place]
  if (schema.items !== undefined) {
    const item = filled(schema.items, place, above)
    return item === undefined ? undefined : [item]
  }
  if (schema.properties !== undefined) {
    const ofProperty = ([name, inner]: [string, Schema]): [string, unknown] => [
      name,
      filled(inner, `${place}.${name}`, inside) ?? simple(inner),
    ]
    return Object.fromEntries(Object.entries(schema.properties).map(ofProperty))
  }
  const [inner] = mapOf(schema)
  const value = inner && filled(inner, `${place}.*`, inside)
  return value === undefined ? undefined : { text: value }
}

const SIMPLE: Record<string, unknown> = { integer: 1, number: 1, boolean: true, array: [], object: {} }

/** Returns a value of a schema without text. */
function simple(of: Schema): unknown {
  const { schema } = variantsOf(of, "").find(({ schema: { type, enum: values } }) => type ?? values) ?? { schema: of }
  return schema.enum?.[0] ?? SIMPLE[String([schema.type].flat()[0])] ?? "2026-01-01T00:00:00Z"
}

/** Returns the properties with text that an object could have and has not. */
function missing(value: object, variants: readonly Variant[]): Record<string, unknown> {
  const found: Record<string, unknown> = {}
  for (const { schema, place } of variants)
    for (const [name, inner] of Object.entries(schema.properties ?? {})) {
      const present = (value as Record<string, unknown>)[name]
      const isEmpty =
        (present ?? null) === null || (typeof present === "object" && Object.keys(present ?? {}).length === 0)
      const text = isEmpty ? filled(inner, `${place}.${name}`) : undefined
      if (text !== undefined) found[name] = text
    }
  return found
}

/** Marks the strings of answers. */
class Marker {
  readonly #mark: Mark
  readonly marked = new Set<string>()

  constructor(mark: Mark) {
    this.#mark = mark
  }

  of(value: unknown, schema: Schema, at: string): unknown {
    const variants = variantsOf(schema, at)
    if (typeof value === "string") return this.#text(value, variants)
    if (Array.isArray(value)) {
      const items = variants.flatMap(({ schema: { items }, place }) => (items === undefined ? [] : [{ items, place }]))
      return value.map((each) => this.of(each, { anyOf: items.map(({ items: one }) => one) }, items[0]?.place ?? at))
    }
    if (typeof value !== "object" || value === null) return value
    return Object.fromEntries(
      Object.entries({ ...value, ...missing(value, variants) }).map(([name, each]) =>
        this.#property(name, each, variants),
      ),
    )
  }

  #property(name: string, value: unknown, variants: readonly Variant[]): [string, unknown] {
    const declared = variants.flatMap(({ schema, place }) => {
      const inner = schema.properties?.[name]
      return inner === undefined ? [] : [{ inner, place }]
    })
    if (declared.length > 0) {
      const anyOf = declared.map(({ inner }) => inner)
      return [name, this.of(value, { anyOf }, `${declared[0]?.place}.${name}`)]
    }
    const maps = variants.flatMap(({ schema, place }) => mapOf(schema).map((inner) => ({ inner, place })))
    const place = `${maps[0]?.place ?? ""}.*`
    return [this.#around(name), this.of(value, { anyOf: maps.map(({ inner }) => inner) }, place)]
  }

  #text(value: string, variants: readonly Variant[]): string {
    const isFixed = ({ schema }: Variant) => schema.const === value || schema.enum?.includes(value) === true
    if (variants.some((variant) => isFixed(variant) || PARSED.test(variant.place))) return value
    for (const { place } of variants.filter(isText)) this.marked.add(place)
    return this.#around(value)
  }

  #around(value: string): string {
    return `${this.#mark.before}${value}${this.#mark.after}`
  }

  /** Returns a text of a client as the façade knows it. */
  without(value: string): string {
    return value.replaceAll(this.#mark.before, "").replaceAll(this.#mark.after, "")
  }

  path(target: string): string {
    const [path = "", query] = target.split("?")
    const segments = path.split("/").map((part) => encodeURIComponent(this.without(decodeURIComponent(part))))
    if (query === undefined) return segments.join("/")
    const parameters = new URLSearchParams()
    for (const [name, value] of new URLSearchParams(query)) parameters.append(name, this.without(value))
    return `${segments.join("/")}?${parameters}`
  }

  body(json: string): string {
    const clean = (value: unknown): unknown => {
      if (typeof value === "string") return this.without(value)
      if (Array.isArray(value)) return value.map(clean)
      if (typeof value !== "object" || value === null) return value
      return Object.fromEntries(Object.entries(value).map(([name, each]) => [this.without(name), clean(each)]))
    }
    return json === "" ? "" : JSON.stringify(clean(JSON.parse(json)))
  }

  /** Returns whole messages of a stream of events. */
  events(messages: string): string {
    return messages.replaceAll(/^event: (\w+)$([\s\S]*?)^data: (.*)$/gm, (message, event, between, data) => {
      const name = EVENTS[event]
      if (name === undefined) return message
      return `event: ${event}${between}data: ${JSON.stringify(this.of(JSON.parse(data), component(name), name))}`
    })
  }
}

/** Returns the schema of an operation's answer. */
function schemaOf(method: string, target: string, status: number): Schema {
  const path = (target.split("?")[0] ?? "").replace(/^(\/projects\/[^/]+)?\/1/, "")
  const operations = Object.entries(DOCUMENT.paths).filter(([template]) =>
    new RegExp(`^${template.replaceAll(/\{[^}]+\}/g, "[^/]+")}$`).test(path),
  )
  // A path without parameters is the more exact one.
  const [, found] = operations.toSorted(([one], [other]) => one.split("{").length - other.split("{").length)[0] ?? []
  const operation = (found as Record<string, { responses: Record<string, Schema> }> | undefined)?.[method.toLowerCase()]
  const answer = operation?.responses[status]
  if (answer === undefined) return component("Problem")
  const content = (resolved(answer, "").schema as Content).content ?? {}
  return Object.values(content)[0]?.schema ?? {}
}

/** Starts the proxy in front of a façade on this machine. */
export async function startMarkingProxy(port: () => number, mark: Mark): Promise<MarkingProxy> {
  const marker = new Marker(mark)
  const server = createServer((req, res) => void pass(req, res, port(), marker))
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    marked: marker.marked,
    close: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

const isJson = ({ "content-type": type = "" }: IncomingHttpHeaders): boolean => /^application\/(\w+\+)?json/.test(type)

async function pass(req: IncomingMessage, res: ServerResponse, port: number, marker: Marker): Promise<void> {
  const { method = "GET", url: target = "/" } = req
  const isOfApi = /^(\/projects\/[^/]+)?\/1\//.test(target)
  const body = isOfApi && isJson(req.headers) ? Buffer.from(marker.body(await text(req))) : undefined
  const path = isOfApi ? marker.path(target) : target
  const { "content-length": _length, ...others } = req.headers
  const headers = {
    ...(body === undefined ? req.headers : { ...others, "content-length": body.length }),
    "accept-encoding": "identity",
  }
  const passed = request({ host: "127.0.0.1", port, method, path, headers }, (answer) => {
    const { "content-length": _size, ...rest } = answer.headers
    const status = answer.statusCode ?? 502
    if (isOfApi && isJson(answer.headers)) {
      void text(answer).then((json) => {
        res.writeHead(status, rest)
        res.end(json === "" ? "" : JSON.stringify(marker.of(JSON.parse(json), schemaOf(method, path, status), "")))
      }, gone)
      return
    }
    res.writeHead(status, answer.headers)
    res.flushHeaders()
    if (isOfApi && answer.headers["content-type"]?.startsWith("text/event-stream")) passEvents(answer, res, marker)
    else answer.pipe(res)
  })
  const gone = (): void => void res.destroy()
  passed.once("error", gone)
  res.once("close", () => passed.destroy())
  if (body === undefined) req.pipe(passed)
  else passed.end(body)
}

/** Passes events on, each as a whole. */
function passEvents(answer: IncomingMessage, res: ServerResponse, marker: Marker): void {
  let rest = ""
  answer.setEncoding("utf8").on("data", (piece: string) => {
    const messages = (rest + piece).split("\n\n")
    rest = messages.pop() ?? ""
    for (const message of messages) res.write(`${marker.events(message)}\n\n`)
  })
  answer.once("end", () => res.end()).once("error", () => res.destroy())
}
