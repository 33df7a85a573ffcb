import { globSync } from "node:fs"
import { join, relative } from "node:path"
import { expect, it } from "vitest"
import { ALLOWED } from "./schema.ts"

const SOURCE = join(import.meta.dirname, "../..")

/** Returns the exported schemas of the modules that declare some, by module and name. */
async function exportedSchemas(): Promise<[name: string, schema: object][]> {
  const files = globSync(["core/{apis,webhooks,records}/*.ts", "api/**/{schema,sign-in}.ts"], { cwd: SOURCE })
  const modules = await Promise.all(
    files
      .filter((file) => !file.endsWith(".test.ts"))
      .map(async (file): Promise<[string, object][]> => {
        const found = (await import(join(SOURCE, file))) as object
        return Object.entries(found).map(([name, value]) => [`${relative(".", file)} ${name}`, value as object])
      }),
  )
  // Responses are not checked, so their schemas have no messages.
  const isChecked = (name: string) => !/(Record|Created|Item)Schema$/.test(name)
  return modules.flat().filter(([name, value]) => isChecked(name) && typeof value === "object" && value !== null)
}

/** Returns the places below a value whose error would print a regular expression. */
function wordless(value: unknown, place: string, seen: Set<unknown>): string[] {
  if (typeof value !== "object" || value === null || seen.has(value)) return []
  seen.add(value)
  // The message of `not` has its own words.
  const parts = Object.entries(value).filter(([key]) => key !== "not")
  const found = parts.flatMap(([key, part]) => wordless(part, `${place}/${key}`, seen))
  const schema = value as Record<string, unknown>
  const isSchema = typeof schema["pattern"] === "string" || typeof schema["format"] === "string"
  const isText = schema["type"] === "string" || [schema["type"]].flat().includes("string")
  if (isSchema && isText && typeof schema[ALLOWED] !== "string") found.push(place)
  return found
}

it("a message says in words what each pattern and format allows", async () => {
  const schemas = await exportedSchemas()
  expect(schemas.length).toBeGreaterThan(100)
  const seen = new Set<unknown>()
  expect(schemas.flatMap(([name, schema]) => wordless(schema, name, seen))).toEqual([])
})
