import { join } from "node:path"
import { answersOf, type GoProgram } from "../go-program.ts"

/** Prometheus' own parser and engine: https://github.com/prometheus/prometheus */
export const PROMQL: GoProgram = { name: "promql", folder: join(import.meta.dirname, "promql") }

/** A series of Prometheus; its values are a minute apart. */
export interface Series {
  labels: { __name__: string; [label: string]: string }
  values: readonly number[]
}

/** Facts about an expression. */
export interface Answer {
  /** Series that the expression selects. */
  selectors: {
    metric: string
    matchers: { label: string; type: "=" | "!=" | "=~" | "!~"; value: string }[]
    /** Labels by which the expression aggregates them. */
    by: string[]
  }[]
  /** Number of resulting series, with only the given ones as input. */
  results: number
}

/** Analyses expressions, each with its own series as the only input. @throws Error for invalid PromQL */
export async function askPromql(questions: readonly { expr: string; series?: readonly Series[] }[]): Promise<Answer[]> {
  const answers = await answersOf<Answer & { error?: string }>(PROMQL, questions)
  for (const [i, { error }] of answers.entries()) {
    if (error !== undefined) throw new Error(`${questions[i]?.expr}: ${error}`)
  }
  return answers
}
