import { execFile } from "node:child_process"
import { mkdir, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import { promisify } from "node:util"
import type { ApiObject } from "../../src/core/kube/resource.ts"
import { type GoProgram, goProgram } from "../go-program.ts"

/** Program that checks manifests against schemas: https://github.com/yannh/kubeconform */
export const KUBECONFORM: GoProgram = {
  name: "kubeconform",
  package: "github.com/yannh/kubeconform/cmd/kubeconform",
  version: "v0.8.0",
}

/** Part of an OpenAPI schema (3.0) that this module reads. */
interface Schema {
  type?: string
  properties?: Record<string, Schema>
  items?: Schema
  additionalProperties?: Schema | boolean
  "x-kubernetes-preserve-unknown-fields"?: boolean
  "x-kubernetes-group-version-kind"?: { group: string; version: string; kind: string }[]
}

/** Checks a file of manifests strictly against the schemas in a folder. @throws Error with its whole output */
export async function kubeconform(path: string, schemas: string): Promise<void> {
  const location = join(schemas, "{{.Group}}", "{{.ResourceAPIVersion}}", "{{.ResourceKind}}.json")
  const args = ["-strict", "-verbose", "-schema-location", location, path]
  await promisify(execFile)(await goProgram(KUBECONFORM), args).catch((cause: { stdout?: string }) => {
    throw new Error(cause.stdout || String(cause), { cause })
  })
}

/** Writes the schemas of the objects' kinds for `kubeconform`, as an API server publishes them. */
export async function writeSchemas(
  objects: readonly ApiObject[],
  folder: string,
  get: (path: string) => Promise<string>,
): Promise<void> {
  for (const apiVersion of new Set(objects.map(({ apiVersion = "" }) => apiVersion))) {
    const kinds = new Set(objects.filter((object) => object.apiVersion === apiVersion).map(({ kind }) => kind))
    const path = `/openapi/v3/${apiVersion.includes("/") ? "apis" : "api"}/${apiVersion}`
    const { components } = JSON.parse(await get(path)) as { components: { schemas: Record<string, Schema> } }
    const definitions = eachOf(components.schemas, strict)
    for (const kind of kinds) {
      const name = nameOf(components.schemas, apiVersion, kind)
      const schema = { $schema: "http://json-schema.org/draft-04/schema#", $ref: `#/definitions/${name}`, definitions }
      const [group = "", version = group] = apiVersion.split("/")
      const file = join(folder, group, version, `${kind?.toLowerCase()}.json`)
      await mkdir(dirname(file), { recursive: true })
      await writeFile(file, JSON.stringify(schema).replaceAll("#/components/schemas/", "#/definitions/"))
    }
  }
}

/** @throws Error for a kind that the API server doesn't publish (yet) */
function nameOf(schemas: Record<string, Schema>, apiVersion: string, kind: string | undefined): string {
  const [name] = Object.entries(schemas).find(([, schema]) =>
    schema["x-kubernetes-group-version-kind"]?.some(
      (one) => one.kind === kind && [one.group, one.version].filter((part) => part !== "").join("/") === apiVersion,
    ),
  ) ?? [undefined]
  if (name === undefined) throw new Error(`the API server has no schema of ${apiVersion} ${kind}`)
  return name
}

/** Returns the schema without room for unknown fields. */
function strict(schema: Schema): Schema {
  const { type, properties, items, additionalProperties: more } = schema
  const isClosed = type === "object" && properties !== undefined && more === undefined
  return {
    ...schema,
    ...(properties && { properties: eachOf(properties, strict) }),
    ...(items && { items: strict(items) }),
    ...(typeof more === "object" && { additionalProperties: strict(more) }),
    ...(isClosed && schema["x-kubernetes-preserve-unknown-fields"] !== true && { additionalProperties: false }),
  }
}

function eachOf<Value>(record: Record<string, Value>, change: (value: Value) => Value): Record<string, Value> {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, change(value)]))
}
