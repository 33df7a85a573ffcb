import { readFileSync } from "node:fs"
import { join } from "node:path"
import { expect, test } from "vitest"
import { CONTRACT } from "../../test/facade/contract.ts"
import { type DocumentField, fieldsOf } from "../../test/facade/document-fields.ts"
import { openApiDocument } from "./document.ts"
import type { Json } from "./http/json-schema.ts"

const DOCUMENT = JSON.parse(JSON.stringify(openApiDocument(["aws", "gcp", "azure"]))) as Json
const FIELDS = [...fieldsOf(DOCUMENT)]

const SNAKE_CASE = /^[a-z][a-z0-9]*(_[a-z0-9]+)*$/
const CAMEL_CASE = /^[a-z][a-z0-9]*([A-Z][a-z0-9]*)*$/

/** Names that don't follow the rule, with their place in the contract. */
const EXCEPTIONS: readonly { name: string; in: (field: DocumentField) => boolean }[] = [
  // "Job record": the one field of the record that has the spelling of a submission.
  { name: "namePrefix", in: isOfJobRecord },
  // "POST /cronjobs" and "Job record" spell the owner so. A job's body may name it too.
  ...["project_id", "organization_id"].map((name) => ({ name, in: isOfJob })),
]

/** True in the body of a job and inside `job_definition`. */
function isOfJob({ operation, part, path }: DocumentField): boolean {
  return (operation === "POST /jobs" && part === "body") || /(^|\/)job_definition\//.test(path)
}

function isOfJobRecord({ tag, part, path }: DocumentField): boolean {
  return tag === "jobs" && part === "response" && !isOfJob({ path } as DocumentField)
}

function isAsRuled(field: DocumentField): boolean {
  if (field.part === "parameter") return SNAKE_CASE.test(field.name)
  return (isOfJob(field) || field.tag === "accounts" ? CAMEL_CASE : SNAKE_CASE).test(field.name)
}

const shown = ({ operation, part, path }: DocumentField) => `${operation} ${part} ${path}`

test("jobs and accounts are in camelCase, all other bodies, records and parameters in snake_case", () => {
  const others = FIELDS.filter((field) => !isAsRuled(field))
  const isException = (field: DocumentField) => EXCEPTIONS.some((one) => one.name === field.name && one.in(field))
  expect(others.filter((field) => !isException(field)).map(shown)).toEqual([])
  // An exception that no field needs is removed.
  expect(EXCEPTIONS.filter(({ name }) => !others.some((field) => field.name === name))).toEqual([])
})

test("docs/api.md has the rule with its exceptions", () => {
  const page = readFileSync(join(import.meta.dirname, "../../docs/api.md"), "utf8")
  const [, section = ""] = /^## Names\n([\s\S]*?)^## /m.exec(page) ?? []
  const words = ["camelCase", "snake_case", "job_definition", "actual_cost", "cost_usd"]
  for (const word of [...words, ...EXCEPTIONS.map(({ name }) => name)]) expect(section).toContain(`\`${word}\``)
})

/** Names of amounts: of the contract, or with the unit. */
const AMOUNT = /^(estimated|estimated_monthly|actual|accrued)_cost$|(^|_)usd(_per_(hour|month))?$|Usd$/

test("each amount of money has its unit in its name, or the contract's name", () => {
  const amounts = FIELDS.filter(({ part, schema: { type, description } }) => {
    const isNumber = [type].flat().includes("number")
    return part !== "parameter" && isNumber && /\bUSD\b/.test(String(description ?? ""))
  })
  expect(amounts.length).toBeGreaterThan(50)
  expect(amounts.filter(({ name }) => !AMOUNT.test(name)).map(shown)).toEqual([])
  expect(FIELDS.filter(({ name, part }) => name === "cost" && part !== "parameter").map(shown)).toEqual([])
})

test("the document has every endpoint, parameter and field of the contract", () => {
  const known = new Set(FIELDS.map(shown))
  const paths = DOCUMENT["paths"] as Record<string, Record<string, unknown>>
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  )
  const listed = Object.entries(CONTRACT)
  expect(listed.map(([operation]) => operation).filter((operation) => !operations.includes(operation))).toEqual([])
  const wanted = listed.flatMap(([operation, { parameters = [], body = [], response = [] }]) => [
    ...parameters.map((name) => `${operation} parameter ${name}`),
    ...body.map((path) => `${operation} body ${path}`),
    ...response.map((path) => `${operation} response ${path}`),
  ])
  expect(wanted.length).toBeGreaterThan(250)
  expect(wanted.filter((one) => !known.has(one))).toEqual([])
})
