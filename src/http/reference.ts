/** The reference page: an OpenAPI document as HTML for people, without scripts and without anything from elsewhere. */

interface Schema {
  $ref?: string
  type?: string | string[]
  description?: string
  enum?: unknown[]
  default?: unknown
  minimum?: number
  maximum?: number
  minLength?: number
  maxLength?: number
  pattern?: string
  format?: string
  required?: string[]
  properties?: Record<string, Schema>
  additionalProperties?: boolean | Schema
  items?: Schema
  oneOf?: Schema[]
  anyOf?: Schema[]
  examples?: unknown[]
}

interface Content {
  schema?: Schema
  example?: unknown
}

interface Answer {
  $ref?: string
  description?: string
  content?: Record<string, Content>
}

interface Parameter {
  name: string
  in: string
  required?: boolean
  description?: string
  schema: Schema
}

interface Operation {
  operationId: string
  summary: string
  description?: string
  tags: string[]
  parameters?: Parameter[]
  requestBody?: { description?: string; content: Record<string, Content> }
  responses: Record<string, Answer>
}

/** The part of an OpenAPI 3.1 document that the page shows. */
export interface ReferenceDocument {
  info: { title: string; version: string; description: string }
  servers: { url: string }[]
  paths: Record<string, Record<string, Operation>>
  components: { schemas: Record<string, Schema>; responses: Record<string, Answer> }
}

/** Markup, as against text: `html` escapes whatever is not. */
class Markup {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

type Part = Markup | string | number | readonly Part[]

/** Puts parts into markup: texts escaped, markup and lists of it as they are. */
function html(strings: TemplateStringsArray, ...parts: Part[]): Markup {
  return new Markup(strings.map((string, index) => string + rendered(parts[index] ?? "")).join(""))
}

function rendered(part: Part): string {
  if (part instanceof Markup) return part.text
  if (typeof part === "object") return part.map(rendered).join("")
  return String(part).replaceAll(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`)
}

/** The page's one style sheet, inside it: its hash is all that the page's Content-Security-Policy allows. */
export const REFERENCE_STYLE = `
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --link: light-dark(#0550ae, #6cb6ff) }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem 1.5rem 4rem; max-width: 60rem }
a { color: var(--link) }
code, pre { font: 0.875em/1.45 ui-monospace, monospace }
code { overflow-wrap: anywhere }
pre { background: var(--soft); padding: 0.75rem 1rem; overflow-x: auto; border-radius: 6px }
nav ul { columns: 18rem; padding-left: 1.2rem }
section.operation, section.schema { border-top: 1px solid var(--line); margin-top: 2rem; padding-top: 0.5rem }
h3 code { font-size: 1em } h4 { margin: 1.2rem 0 0.3rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.8rem 0.3rem 0; border-bottom: 1px solid var(--line) }
.method { text-transform: uppercase; font-weight: 700 } .soft { opacity: 0.75 }
`

/** The whole page. */
export function referencePage(document: ReferenceDocument): string {
  const { info, servers, components } = document
  const operations = operationsOf(document)
  const tags = [...new Set(operations.flatMap(({ operation }) => operation.tags))]
  const page = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${info.title} API</title>
<style>${new Markup(REFERENCE_STYLE)}</style>
</head>
<body>
<h1>${info.title} API</h1>
${info.description.split("\n\n").map((paragraph) => html`<p>${paragraph}</p>`)}
<p>Paths are relative to <code>${servers[0]?.url ?? "/"}</code>. For programs: <a href="openapi.json">openapi.json</a>.</p>
<nav aria-label="Contents">
${tags.map((tag) => contents(tag, operations))}
<h2>Records</h2>
<ul>${Object.keys(components.schemas).map((name) => html`<li>${schemaLink(name)}</li>`)}</ul>
</nav>
<main>
${operations.map((one) => operationSection(one, components.responses))}
${Object.entries(components.schemas).map(([name, schema]) => schemaSection(name, schema))}
</main>
</body>
</html>
`
  return page.text
}

interface Placed {
  method: string
  path: string
  operation: Operation
}

function operationsOf({ paths }: ReferenceDocument): Placed[] {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method, path, operation })),
  )
}

function contents(tag: string, operations: readonly Placed[]): Markup {
  const own = operations.filter(({ operation }) => operation.tags.includes(tag))
  return html`<h2>${tag}</h2>
<ul>${own.map(({ operation }) => html`<li><a href="#${operation.operationId}">${operation.summary}</a></li>`)}</ul>`
}

function operationSection({ method, path, operation }: Placed, shared: Record<string, Answer>): Markup {
  const { operationId, summary, description = "", parameters = [], requestBody, responses } = operation
  return html`<section class="operation" id="${operationId}">
<h3><span class="method">${method}</span> <code>${path}</code></h3>
<p>${summary} ${description}</p>
${parameters.length === 0 ? "" : html`<h4>Parameters</h4>${table(parameters.map(parameterRow))}`}
${requestBody === undefined ? "" : html`<h4>Body</h4>${contentParts(requestBody.content, requestBody.description)}`}
<h4>Answers</h4>
${table(Object.entries(responses).map(([status, answer]) => answerRow(status, answer, shared)))}
${Object.values(responses).map(({ content }) => examplesIn(content))}
</section>
`
}

function table(rows: readonly Markup[]): Markup {
  return html`<table>${rows}</table>`
}

function parameterRow({ name, in: place, required, description, schema }: Parameter): Markup {
  return html`<tr><th scope="row"><code>${name}</code></th>
<td>${place}${required ? ", required" : ""}</td><td>${schemaWords(schema)} ${description ?? schema.description ?? ""}</td></tr>`
}

function contentParts(content: Record<string, Content>, description = ""): Markup {
  const media = Object.entries(content).map(
    ([type, { schema }]) => html`<li><code>${type}</code>: ${schemaWords(schema)}</li>`,
  )
  return html`<ul>${media}</ul><p>${description}</p>${examplesIn(content)}`
}

function examplesIn(content: Record<string, Content> = {}): Markup {
  const examples = Object.values(content).flatMap(({ example }) => (example === undefined ? [] : [example]))
  return html`${examples.map((example) => html`<pre>${JSON.stringify(example, null, 2)}</pre>`)}`
}

function answerRow(status: string, answer: Answer, shared: Record<string, Answer>): Markup {
  const { description = "", content = {} } =
    answer.$ref === undefined ? answer : (shared[nameOf(answer.$ref)] ?? answer)
  const bodies = Object.values(content).map(({ schema }) => html` ${schemaWords(schema)}`)
  return html`<tr><th scope="row">${status}</th><td>${description}</td><td>${bodies}</td></tr>`
}

function schemaSection(name: string, schema: Schema): Markup {
  return html`<section class="schema" id="schema-${name}">
<h3>${name}</h3>
<p>${schema.description ?? ""}</p>
${schemaBody(schema)}
${(schema.examples ?? []).map((example) => html`<pre>${JSON.stringify(example, null, 2)}</pre>`)}
</section>
`
}

function schemaBody(schema: Schema): Markup {
  const { properties, required = [] } = schema
  if (properties === undefined) return html`<p>${schemaWords(schema)}</p>`
  return table(Object.entries(properties).map(([field, inner]) => fieldRow(field, inner, required.includes(field))))
}

function fieldRow(field: string, schema: Schema, isRequired: boolean): Markup {
  const inside = schema.properties === undefined ? "" : schemaBody(schema)
  return html`<tr><th scope="row"><code>${field}</code></th><td>${isRequired ? "required" : "optional"}</td>
<td>${schemaWords(schema)} ${schema.description ?? ""}${inside}</td></tr>`
}

/** A schema in words: a link, or its type and bounds. */
function schemaWords(schema: Schema = {}): Markup {
  if (schema.$ref !== undefined) return schemaLink(nameOf(schema.$ref))
  // Beside a type they only narrow it.
  const choices = schema.type === undefined ? (schema.oneOf ?? schema.anyOf) : undefined
  if (choices !== undefined)
    return html`${choices.map((one, index) => html`${index === 0 ? "" : " or "}${schemaWords(one)}`)}`
  const { properties, items, additionalProperties } = schema
  const types = [schema.type ?? "any"].flat().join(" or ")
  const of = items === undefined ? "" : html` of ${schemaWords(items)}`
  const named = properties === undefined || schema.type === undefined ? "" : fieldsInWords(properties)
  const values =
    typeof additionalProperties === "object" ? html` with values: ${schemaWords(additionalProperties)}` : ""
  return html`<span class="soft">${types}${of}${values}${named}${boundsOf(schema)}.</span>`
}

function fieldsInWords(properties: Record<string, Schema>): string {
  return ` of ${Object.keys(properties).join(", ")}`
}

function boundsOf(schema: Schema): string {
  const { minimum, maximum, minLength, maxLength } = schema
  const bounds = [
    schema.enum === undefined ? "" : `one of ${schema.enum.map(String).join(", ")}`,
    minimum === undefined ? "" : `from ${minimum}`,
    maximum === undefined ? "" : `at most ${maximum}`,
    minLength === undefined ? "" : minLength === 1 ? "not empty" : `at least ${minLength} characters`,
    maxLength === undefined ? "" : `at most ${maxLength} characters`,
    schema.pattern === undefined ? "" : `matching ${schema.pattern}`,
    schema.format === undefined ? "" : schema.format,
    schema.default === undefined ? "" : `default ${JSON.stringify(schema.default)}`,
  ]
  return bounds
    .filter((bound) => bound !== "")
    .map((bound) => `; ${bound}`)
    .join("")
}

function schemaLink(name: string): Markup {
  return html`<a href="#schema-${name}">${name}</a>`
}

function nameOf(reference: string): string {
  return reference.slice(reference.lastIndexOf("/") + 1)
}
