import { mkdir, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { EVERYTHING, ONLY, SEED } from "./effort.ts"

const FOLDER = join(import.meta.dirname, "..", "..", "docs", "reliability")

/** Promises that a fault can break for a job or its objects, VMs included. */
export const VIOLATIONS = ["duplicates", "leaks", "lost", "stuck", "killed"] as const
export type Violation = (typeof VIOLATIONS)[number]

/** Row of the table in docs/reliability.md: faults of one class, and the violations that they caused. */
export type TallyRow = Record<Violation, number> & {
  faults: string
  tried: number
  /** Target of the faults, if it is not the API server and clouds in general. */
  on?: string
}

/** File `docs/reliability/<suite>.json` that a suite writes in the long run, and `scripts/reliability.ts` reads. */
export interface TallyFile {
  title: string
  seed: number
  rows: TallyRow[]
}

/** Counts the violation of faults by their class. */
export class Tally {
  readonly #suite: string
  readonly #title: string
  readonly #rows = new Map<string, TallyRow>()

  /** @param suite name of its file */
  constructor(suite: string, title: string) {
    this.#suite = suite
    this.#title = title
  }

  /** Counts `times` runs with a fault of this class, and the violations in them. */
  count({ faults, on }: Pick<TallyRow, "faults" | "on">, violations: readonly Violation[] = [], times = 1): void {
    const key = JSON.stringify([faults, on])
    const row = this.#rows.get(key) ?? {
      ...{ faults, ...(on !== undefined && { on }), tried: 0 },
      ...{ duplicates: 0, leaks: 0, lost: 0, stuck: 0, killed: 0 },
    }
    row.tried += times
    for (const violation of violations) row[violation]++
    this.#rows.set(key, row)
  }

  get rows(): TallyRow[] {
    return [...this.#rows.values()]
  }

  /**
   * Writes the file after the long run; a sample only prints it. Call it at the end of a suite. Does nothing without
   * runs.
   */
  async close(): Promise<void> {
    if (this.#rows.size === 0) return
    const file: TallyFile = { title: this.#title, seed: SEED, rows: this.rows }
    console.log(`${this.#suite}: ${JSON.stringify(file)}`)
    if (!EVERYTHING || ONLY !== undefined) return
    await mkdir(FOLDER, { recursive: true })
    await writeFile(join(FOLDER, `${this.#suite}.json`), `${JSON.stringify(file, undefined, 2)}\n`)
  }
}
