import { join } from "node:path"
import { expect, it } from "vitest"
import { openApiDocument } from "./document.ts"

const GOLDEN = join(import.meta.dirname, "../../test/facade/golden/openapi.json")

/** Keywords for people. Programs that call the API don't depend on them, so this test ignores them. */
const PROSE = ["title", "summary", "description", "example", "examples"]

/** Keywords whose keys are names of the API. Such a name may be equal to a keyword. */
const NAMES = ["properties", "schemas", "responses", "headers", "links", "paths", "mapping", "securitySchemes"]

/** Returns the part of a document that programs depend on: without prose, with keys and parameters sorted. */
function structureOf(value: unknown, keysAreNames = false): unknown {
  if (Array.isArray(value)) return value.map((item) => structureOf(item))
  if (typeof value !== "object" || value === null) return value
  const entries = Object.entries(value)
    .filter(([key]) => keysAreNames || !PROSE.includes(key))
    .map(([key, item]): [string, unknown] => {
      if (key === "parameters" && Array.isArray(item))
        return [key, item.map((one) => structureOf(one)).toSorted(byText)]
      if (key === "required" && Array.isArray(item)) return [key, item.toSorted()]
      return [key, structureOf(item, !keysAreNames && NAMES.includes(key))]
    })
  return Object.fromEntries(entries.toSorted(([a], [b]) => (a < b ? -1 : 1)))
}

function byText(a: unknown, b: unknown): number {
  return JSON.stringify(a) < JSON.stringify(b) ? -1 : 1
}

it("the OpenAPI document describes the same operations as the golden document", async () => {
  const structure = structureOf(JSON.parse(JSON.stringify(openApiDocument(["aws", "gcp", "azure"]))))
  await expect(`${JSON.stringify(structure, null, 2)}\n`).toMatchFileSnapshot(GOLDEN)
})
