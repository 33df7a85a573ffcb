import { mkdir, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { EVERYTHING, ONLY, SEED } from "./effort.ts"

const FOLDER = join(import.meta.dirname, "..", "..", "docs", "reliability")

/** What can become of a job, or of what stands for one, that must not. */
export const HARMS = ["duplicates", "leaks", "lost", "stuck", "killed"] as const
export type Harm = (typeof HARMS)[number]

/** One line of the table in docs/reliability.md: faults of one class, and what harm they did. */
export type TallyRow = Record<Harm, number> & {
  faults: string
  tried: number
  /** Against what, when that is not the API server and clouds in general. */
  on?: string
}

/** What a suite writes to `docs/reliability/<suite>.json` in the long run, and `scripts/reliability.ts` reads. */
export interface TallyFile {
  title: string
  seed: number
  rows: TallyRow[]
}

/** Counts what faults did, by their class. */
export class Tally {
  readonly #suite: string
  readonly #title: string
  readonly #rows = new Map<string, TallyRow>()

  /** @param suite name of its file */
  constructor(suite: string, title: string) {
    this.#suite = suite
    this.#title = title
  }

  /** A fault of this class was tried `times` times, and did this harm. */
  count({ faults, on }: Pick<TallyRow, "faults" | "on">, harms: readonly Harm[] = [], times = 1): void {
    const key = JSON.stringify([faults, on])
    const row = this.#rows.get(key) ?? {
      ...{ faults, ...(on !== undefined && { on }), tried: 0 },
      ...{ duplicates: 0, leaks: 0, lost: 0, stuck: 0, killed: 0 },
    }
    row.tried += times
    for (const harm of harms) row[harm]++
    this.#rows.set(key, row)
  }

  get rows(): TallyRow[] {
    return [...this.#rows.values()]
  }

  /** Keeps what the long run found; a sample only prints it. Call it when the suite is over. Nothing tried, nothing kept. */
  async close(): Promise<void> {
    if (this.#rows.size === 0) return
    const file: TallyFile = { title: this.#title, seed: SEED, rows: this.rows }
    console.log(`${this.#suite}: ${JSON.stringify(file)}`)
    if (!EVERYTHING || ONLY !== undefined) return
    await mkdir(FOLDER, { recursive: true })
    await writeFile(join(FOLDER, `${this.#suite}.json`), `${JSON.stringify(file, undefined, 2)}\n`)
  }
}
