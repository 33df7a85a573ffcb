/** Settings of the statement controller. */
export interface StatementSettings {
  /** Shortest time between two writes of a project's Statements, seconds. Costs that arrive meanwhile share a write. */
  collectSeconds: number
  /** Number of months that a Statement is kept after its own. */
  monthsKept: number
}

export const STATEMENT_DEFAULTS: StatementSettings = { collectSeconds: 5, monthsKept: 13 }
