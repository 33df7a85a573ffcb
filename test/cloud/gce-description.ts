import { readFileSync } from "node:fs"
import { createRequire } from "node:module"

/**
 * Compute Engine's own description of its API, from Google's SDK: the requests, their fields and the answers. A test's
 * server checks its requests and answers against it.
 */

interface Field {
  type: string
  rule?: "repeated"
  keyType?: string
  options?: Record<string, unknown>
}

interface Type {
  fields?: Record<string, Field>
  values?: Record<string, number>
  methods?: Record<string, { requestType: string; responseType: string; options: Record<string, string> }>
  nested?: Record<string, Type>
}

/** Request of the API, found by its method and path. */
export interface Matched {
  /** Name such as Instances.Insert. */
  name: string
  /** Parameters of the path, by their names in the description. */
  path: Record<string, string>
  requestType: string
  responseType: string
  /** Name of the request's field that the body is. */
  bodyField?: string
}

interface Route extends Omit<Matched, "path"> {
  verb: string
  pattern: RegExp
}

const VERBS = ["get", "post", "put", "patch", "delete"]

const root = JSON.parse(
  readFileSync(createRequire(import.meta.url).resolve("@google-cloud/compute/build/protos/protos.json"), "utf8"),
) as Type
const types: Record<string, Type> =
  root.nested?.["google"]?.nested?.["cloud"]?.nested?.["compute"]?.nested?.["v1"]?.nested ?? {}

function routesOf(services: readonly string[]): Route[] {
  return services.flatMap((service) =>
    Object.entries(types[service]?.methods ?? {}).flatMap(([method, { requestType, responseType, options }]) => {
      const verb = VERBS.find((each) => options[`(google.api.http).${each}`] !== undefined) ?? "get"
      const template = options[`(google.api.http).${verb}`] ?? ""
      const source = template.replaceAll(/\{(\w+)\}/g, (_, name: string) => `(?<${camel(name)}>[^/]+)`)
      const body = options["(google.api.http).body"]
      const name = `${service}.${method}`
      const pattern = new RegExp(`^${source}$`)
      return [{ name, verb, pattern, requestType, responseType, ...(body !== undefined && { bodyField: camel(body) }) }]
    }),
  )
}

function camel(name: string): string {
  return name.replaceAll(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase())
}

const routes = routesOf([
  "Instances",
  "ZoneOperations",
  "GlobalOperations",
  "Regions",
  "Firewalls",
  "Networks",
  "Projects",
])

/** Returns the API's request for this method and path, or undefined if it has none. */
export function matchRequest(method: string, path: string): Matched | undefined {
  for (const { verb, pattern, ...route } of routes) {
    const match = verb === method.toLowerCase() ? pattern.exec(path) : null
    if (match !== null) return { ...route, path: { ...match.groups } }
  }
  return undefined
}

/** Returns the parts of a request that the API doesn't describe. */
export function requestFaults(matched: Matched, query: URLSearchParams, body: unknown): string[] {
  const fields = types[matched.requestType]?.fields ?? {}
  const faults: string[] = []
  for (const name of query.keys()) {
    if (name !== "$alt" && name !== "alt" && fields[name] === undefined) faults.push(`unknown parameter ${name}`)
  }
  const bodyType = matched.bodyField === undefined ? undefined : fields[matched.bodyField]?.type
  if (bodyType !== undefined) faults.push(...errorsOf(body, bodyType, ""))
  for (const [name, { options }] of Object.entries(fields)) {
    if (options?.["(google.api.field_behavior)"] !== "REQUIRED" || name === matched.bodyField) continue
    if (matched.path[name] === undefined && !query.has(name)) faults.push(`missing parameter ${name}`)
  }
  return faults
}

/** Returns the parts of an answer that the API doesn't describe. */
export function answerFaults(matched: Matched, answer: unknown): string[] {
  return errorsOf(answer, matched.responseType, "")
}

const STRINGS = ["string", "int64", "uint64"]
const NUMBERS = ["int32", "uint32", "double", "float"]

function errorsOf(value: unknown, typeName: string, at: string, scope: readonly Type[] = []): string[] {
  return scalarFaults(value, typeName, at) ?? messageFaults(value, typeName, at, scope)
}

/** Returns undefined if the type is not a number, string or boolean. */
function scalarFaults(value: unknown, typeName: string, at: string): string[] | undefined {
  if (STRINGS.includes(typeName)) return typeof value === "string" ? [] : [`${at}: must be a string (${typeName})`]
  if (NUMBERS.includes(typeName)) return typeof value === "number" ? [] : [`${at}: must be a number`]
  if (typeName === "bool") return typeof value === "boolean" ? [] : [`${at}: must be true or false`]
  return undefined
}

/** Checks an enum or an object. Looks up its type in the enclosing types, from the inside out. */
function messageFaults(value: unknown, typeName: string, at: string, scope: readonly Type[]): string[] {
  const type = [...scope].reverse().find(({ nested }) => nested?.[typeName])?.nested?.[typeName] ?? types[typeName]
  if (type === undefined) return [`${at}: of type ${typeName}, which is not described`]
  if (type.values !== undefined) {
    return typeof value === "string" && type.values[value] !== undefined ? [] : [`${at}: ${value} is no ${typeName}`]
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return [`${at}: must be an object`]
  return Object.entries(value).flatMap(([name, part]) => fieldFaults(part, name, { at: `${at}/${name}`, type, scope }))
}

function fieldFaults(
  value: unknown,
  name: string,
  { at, type, scope }: { at: string; type: Type; scope: readonly Type[] },
): string[] {
  const field = type.fields?.[name]
  if (field === undefined) return [`${at}: unknown field`]
  const inner = [...scope, type]
  if (field.keyType !== undefined) {
    return Object.entries(value as object).flatMap(([key, each]) => errorsOf(each, field.type, `${at}/${key}`, inner))
  }
  if (field.rule === "repeated") {
    if (!Array.isArray(value)) return [`${at}: must be an array`]
    return value.flatMap((each, index) => errorsOf(each, field.type, `${at}/${index}`, inner))
  }
  // Fields with a fixed choice of strings have an enum of their name beside them.
  const choice = type.nested?.[name.charAt(0).toUpperCase() + name.slice(1)]?.values
  const unknown = field.type === "string" && choice !== undefined && choice[String(value)] === undefined
  return unknown
    ? [`${at}: "${value}" is none of ${Object.keys(choice).join(", ")}`]
    : errorsOf(value, field.type, at, inner)
}
