import { expect, it } from "vitest"
import { KINDS } from "../core/apis/kinds.ts"
import { openApiDocument } from "./document.ts"

/** Returns all regular expressions of a schema or document: of values, and of names of properties. */
function patternsOf(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(patternsOf)
  if (typeof value !== "object" || value === null) return []
  const { pattern, patternProperties = {} } = value as { pattern?: unknown; patternProperties?: object }
  const own = typeof pattern === "string" ? [pattern] : []
  return [...own, ...Object.keys(patternProperties), ...Object.values(value).flatMap(patternsOf)]
}

/** Returns true for a part whose characters differ between RE2, JavaScript and Python: `.`, `\s`, `\w`, `\b`, and so on. */
function dependsOnEngine(pattern: string): boolean {
  const withoutClasses = pattern.replaceAll(/\[(\\.|[^\]\\])*\]/g, "_")
  return /\\[sSwWdDbBpP]/.test(pattern) || /(^|[^\\])(\\\\)*\./.test(withoutClasses)
}

it("every pattern means the same to the API server, to the façade and to clients in other languages", () => {
  const document = openApiDocument(["aws", "gcp", "azure"])
  const patterns = new Set([...KINDS.flatMap(patternsOf), ...patternsOf(document)])
  expect(patterns.size).toBeGreaterThan(20)
  expect([...patterns].filter(dependsOnEngine)).toEqual([])
})
