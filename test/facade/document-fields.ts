import type { Json } from "../../src/api/http/json-schema.ts"

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
  const reader = new Reader(document)
  for (const [path, methods] of Object.entries(document["paths"] as Record<string, Record<string, Json>>)) {
    for (const [method, operation] of Object.entries(methods)) {
      const [tag = ""] = (operation["tags"] ?? []) as string[]
      for (const field of reader.ofOperation(operation))
        yield { operation: `${method.toUpperCase()} ${path}`, tag, ...field }
    }
  }
}

type Found = Omit<DocumentField, "operation" | "tag">

class Reader {
  readonly #document: Json

  constructor(document: Json) {
    this.#document = document
  }

  *ofOperation(operation: Json): Generator<Found> {
    for (const one of (operation["parameters"] ?? []) as Parameter[]) {
      const { name, in: place, schema } = this.#resolved(one)
      if (place !== "header") yield { part: "parameter", path: name, name, schema }
    }
    for (const field of this.#inContent(operation["requestBody"] as Content)) yield { part: "body", ...field }
    for (const response of Object.values(operation["responses"] as Record<string, Content>))
      for (const field of this.#inContent(response)) yield { part: "response", ...field }
  }

  *#inContent(part: Content | undefined): Generator<Omit<Found, "part">> {
    for (const { schema = {} } of Object.values(this.#resolved(part)?.content ?? {})) yield* this.#within(schema, "")
  }

  *#within(schema: Part, path: string): Generator<Omit<Found, "part">> {
    const { properties = {}, items, additionalProperties, ...others } = this.#resolved(schema)
    const { anyOf = [], oneOf = [], allOf = [] } = others as Choices
    for (const choice of [...anyOf, ...oneOf, ...allOf]) yield* this.#within(choice, path)
    if (items !== undefined) yield* this.#within(items, `${path}[]`)
    if (typeof additionalProperties === "object") yield* this.#within(additionalProperties, `${path}{}`)
    for (const [name, property] of Object.entries(properties)) {
      const at = path === "" ? name : `${path}/${name}`
      yield { path: at, name, schema: this.#resolved(property) }
      yield* this.#within(property, at)
    }
  }

  #resolved<Node>(node: Node): Node {
    const reference = (node as Part | undefined)?.$ref
    if (reference === undefined) return node
    const keys = reference.split("/").slice(1)
    return this.#resolved(keys.reduce<Json>((inside, key) => inside[key] as Json, this.#document) as Node)
  }
}
