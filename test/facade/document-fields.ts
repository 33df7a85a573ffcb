import type { Json } from "../../src/http/json-schema.ts"

/** Name that a client of the REST API writes or reads, as the OpenAPI document has it. */
export interface DocumentField {
  /** Method and path, such as `GET /jobs`. */
  operation: string
  /** Group of the operation, such as `jobs`. */
  tag: string
  part: "parameter" | "body" | "response"
  /** Names down to this one: `jobs[]/volumes[]/bucket`. Items of a list have `[]` before them, values of a map `{}`. */
  path: string
  name: string
  schema: Json
}

type Part = Json & {
  $ref?: string
  properties?: Record<string, Part>
  items?: Part
  additionalProperties?: boolean | Part
}
type Choices = Partial<Record<"anyOf" | "oneOf" | "allOf", Part[]>>
type Content = { content?: Record<string, { schema?: Part }> }
type Parameter = { name: string; in: string; schema: Part }

/** Returns all fields and parameters of a document, but no headers. A field of several schemas is there several times. */
export function* fieldsOf(document: Json): Generator<DocumentField> {
  const resolve = <Node>(node: Node): Node => {
    const reference = (node as Part | undefined)?.$ref
    if (reference === undefined) return node
    const keys = reference.split("/").slice(1)
    return resolve(keys.reduce<Json>((inside, key) => inside[key] as Json, document) as Node)
  }

  function* within(schema: Part | undefined, path: string): Generator<Pick<DocumentField, "path" | "name" | "schema">> {
    if (schema === undefined) return
    const { properties = {}, items, additionalProperties, ...others } = resolve(schema)
    const { anyOf = [], oneOf = [], allOf = [] } = others as Choices
    for (const choice of [...anyOf, ...oneOf, ...allOf]) yield* within(choice, path)
    yield* within(items, `${path}[]`)
    if (typeof additionalProperties === "object") yield* within(additionalProperties, `${path}{}`)
    for (const [name, property] of Object.entries(properties)) {
      const at = path === "" ? name : `${path}/${name}`
      yield { path: at, name, schema: resolve(property) }
      yield* within(property, at)
    }
  }

  function* inContent(part: Content | undefined) {
    for (const { schema } of Object.values(resolve(part)?.content ?? {})) yield* within(schema, "")
  }

  for (const [path, methods] of Object.entries(document["paths"] as Record<string, Record<string, Json>>)) {
    for (const [method, operation] of Object.entries(methods)) {
      const [tag = ""] = (operation["tags"] ?? []) as string[]
      const at = { operation: `${method.toUpperCase()} ${path}`, tag }
      for (const { name, in: place, schema } of ((operation["parameters"] ?? []) as Parameter[]).map(resolve))
        if (place !== "header") yield { ...at, part: "parameter", path: name, name, schema }
      for (const field of inContent(operation["requestBody"] as Content)) yield { ...at, part: "body", ...field }
      for (const response of Object.values(operation["responses"] as Record<string, Content>))
        for (const field of inContent(response)) yield { ...at, part: "response", ...field }
    }
  }
}
