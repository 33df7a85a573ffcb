import { isMap, isScalar, type Pair, parseDocument, type YAMLMap } from "yaml"

/** The parts of JSON Schema that the chart's schema uses. */
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
  /** Absent for a group of values. */
  standard?: string
  meaning: string
}

/**
 * Returns the table of all values of a chart, in Markdown. Each purpose is the comment above the value in values.yaml.
 * The allowed values come from values.schema.json. Pure. @throws Error for a value that the schema does not have, or
 * that has no comment
 */
export function valuesTable(valuesYaml: string, schemaJson: string): string {
  const root = JSON.parse(schemaJson) as Schema
  const { contents } = parseDocument(valuesYaml)
  if (!isMap(contents)) throw new Error("values.yaml is not a map")
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
      if (row.meaning === "") throw new Error(`values.yaml has no comment for ${row.path}: add one above it`)
      return [{ ...row, standard: standardOf(value) }]
    }
    return [...(row.meaning === "" ? [] : [row]), ...rowsOf(value, { path: `${row.path}.`, schema: own, root })]
  })
}

/**
 * Returns the comment above a value. The parser assigns a first key's comment to its map. It also joins that with the
 * file's own comment, although an empty line separates them.
 */
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
