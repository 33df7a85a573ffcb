import { join } from "node:path"
import { answersOf, type GoProgram } from "../go-program.ts"

/** Prometheus' own parser and engine: https://github.com/prometheus/prometheus */
export const PROMQL: GoProgram = { name: "promql", folder: join(import.meta.dirname, "promql") }

/** A series as Prometheus has it; its values are a minute apart. */
export interface Series {
  labels: { __name__: string; [label: string]: string }
  values: readonly number[]
}

/** What an expression is. */
export interface Answer {
  /** The series that it asks for. */
  selectors: {
    metric: string
    matchers: { label: string; type: "=" | "!=" | "=~" | "!~"; value: string }[]
    /** Labels that it adds them up by. */
    by: string[]
  }[]
  /** How many series it results in, when there are only the given ones. */
  results: number
}

/** Asks about expressions, each beside the only series that there are. @throws Error for what is no PromQL */
export async function askPromql(questions: readonly { expr: string; series?: readonly Series[] }[]): Promise<Answer[]> {
  const answers = await answersOf<Answer & { error?: string }>(PROMQL, questions)
  for (const [i, { error }] of answers.entries()) {
    if (error !== undefined) throw new Error(`${questions[i]?.expr}: ${error}`)
  }
  return answers
}
