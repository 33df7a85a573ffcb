import { isMap, isScalar, type Pair, parseDocument, type YAMLMap } from "yaml"

/** What of JSON Schema the chart's schema uses. */
interface Schema {
  $ref?: string
  type?: string | readonly string[]
  enum?: readonly string[]
  minimum?: number
  maximum?: number
  properties?: Record<string, Schema>
  definitions?: Record<string, Schema>
}

interface Row {
  path: string
  schema: Schema
  /** Absent: of values below it. */
  standard?: string
  meaning: string
}

/**
 * The table of all values of a chart, in Markdown: what each is for is the comment above it in values.yaml, what it may be
 * comes from values.schema.json. Pure. @throws Error for a value that the schema doesn't know, or that has no comment
 */
export function valuesTable(valuesYaml: string, schemaJson: string): string {
  const root = JSON.parse(schemaJson) as Schema
  const { contents } = parseDocument(valuesYaml)
  if (!isMap(contents)) throw new Error("values.yaml is no map")
  const rows = rowsOf(contents, { path: "", schema: root, root })
  return ["| value | default | may be | meaning |", "|---|---|---|---|", ...rows.map(line)].join("\n")
}

function rowsOf(map: YAMLMap, { path, schema, root }: { path: string; schema: Schema; root: Schema }): Row[] {
  return map.items.flatMap((pair, i) => {
    const key = isScalar(pair.key) ? String(pair.key.value) : ""
    const own = resolved(schema.properties?.[key], root)
    if (own === undefined) throw new Error(`values.schema.json has no ${path}${key}`)
    const row = { path: `${path}${key}`, schema: own, meaning: meaningOf(pair, i === 0 ? map : undefined) }
    const { value } = pair
    if (!isMap(value) || value.flow === true || own.properties === undefined) {
      if (row.meaning === "") throw new Error(`values.yaml doesn't say what ${row.path} is for: put a comment above it`)
      return [{ ...row, standard: standardOf(value) }]
    }
    return [...(row.meaning === "" ? [] : [row]), ...rowsOf(value, { path: `${row.path}.`, schema: own, root })]
  })
}

/** The parser takes a first key's comment for its map's, and the file's own, after an empty line, for a part of it. */
function meaningOf({ key }: Pair, map: YAMLMap | undefined): string {
  const comment = (isScalar(key) ? key.commentBefore : undefined) ?? map?.commentBefore ?? ""
  const [last = ""] = comment.split(/\n\s*\n/).slice(-1)
  return last.replace(/\s*\n\s*/g, " ").trim()
}

function resolved(schema: Schema | undefined, root: Schema): Schema | undefined {
  const name = schema?.$ref?.replace("#/definitions/", "")
  return name === undefined ? schema : root.definitions?.[name]
}

function standardOf(value: unknown): string {
  const plain = (value as { toJSON(): unknown } | null)?.toJSON()
  return JSON.stringify(plain)
}

function allowedOf({ type, enum: choices, minimum, maximum }: Schema): string {
  if (choices !== undefined) return choices.map((choice) => `\`${choice}\``).join(", ")
  const least = minimum === undefined ? "" : `, at least ${minimum}`
  const most = maximum === undefined ? "" : `, at most ${maximum}`
  return `${[type ?? "anything"].flat().join(" or ")}${least}${most}`
}

function line({ path, schema, standard, meaning }: Row): string {
  const cells = [
    `\`${path}\``,
    standard === undefined || standard === '""' ? "" : `\`${standard}\``,
    standard === undefined ? "" : allowedOf(schema),
    meaning.replace(/[<|]/g, "\\$&"),
  ]
  return `| ${cells.join(" | ")} |`
}
