import { type BerthClient, readBody, type Schemas } from "./client.ts"

export type CostReport = Schemas["CostReport"]

/** Days and groups of a report. Default: this month by day. */
export interface CostQuery {
  from?: string
  to?: string
  by?: string
}

/** Returns what the project's VMs cost, and the budgets that it is under. */
export async function costReport(client: BerthClient, query: CostQuery = {}, signal?: AbortSignal) {
  const options = { params: { query }, ...(signal !== undefined && { signal }) }
  // The other type of the response is that of format=focus.
  return (await readBody(client.api.GET("/costs", options))) as CostReport
}

/** Returns the costs as CSV in the columns of FOCUS 1.2. */
export async function focusReport(client: BerthClient, query: CostQuery = {}): Promise<string> {
  const params = { query: { ...query, format: "focus" as const } }
  const { data } = await client.api.GET("/costs", { params, parseAs: "text" })
  return String(data)
}

/** Returns the days of a month such as 2026-10; undefined if the text isn't a month. */
export function daysOfMonth(month: string): { from: string; to: string } | undefined {
  const [, year, number] = /^([12]\d{3})-(0[1-9]|1[0-2])$/.exec(month) ?? []
  if (year === undefined) return undefined
  const next = new Date(Date.UTC(Number(year), Number(number), 1))
  return { from: `${month}-01`, to: next.toISOString().slice(0, 10) }
}

/** Returns the rows of a report as CSV. */
export function toCsv({ by, rows }: CostReport): string {
  const lines = rows.map(({ key, cost_usd }) => `${csvField(key ?? "")},${cost_usd}`)
  return [`${csvField(by)},cost_usd`, ...lines].map((line) => `${line}\n`).join("")
}

/** Returns a field of RFC 4180. Spreadsheets evaluate a text that begins like a formula, so it gets a quote. */
export function csvField(value: string): string {
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
