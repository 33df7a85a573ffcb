import { mkdir, readFile, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { EVERYTHING, ONLY, SEED, SLICE } from "./effort.ts"

const FOLDER = join(import.meta.dirname, "..", "..", "docs", "reliability")

/** Promises that a fault can break for a job or its objects, VMs included. */
export const VIOLATIONS = ["duplicates", "leaks", "lost", "stuck", "killed"] as const
export type Violation = (typeof VIOLATIONS)[number]

/** A violation, and what shows it. */
export interface Finding {
  violation: Violation
  what: string
}

/** Row of the table in docs/reliability/tables.md: faults of one class, and the violations that they caused. */
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
  /** Number of all faults of the suite, if slices of them can be tried. */
  points?: number
  /** Number of tries in each slice that was run, by `number/of`. Absent: all faults were tried. */
  slices?: Record<string, number>
  rows: TallyRow[]
}

/**
 * Returns the results of a slice together with those of earlier ones. Slices of another seed, or of another division, are
 * replaced.
 */
export function withEarlier(now: TallyFile, before: TallyFile | undefined): TallyFile {
  const [slice = ""] = Object.keys(now.slices ?? {})
  const known = Object.keys(before?.slices ?? {})
  const isSame = before?.seed === now.seed && known.every((one) => one.split("/")[1] === slice.split("/")[1])
  if (before === undefined || !isSame || known.length === 0) return now
  // A slice that is run again says nothing new.
  if (known.includes(slice)) return before
  const rows = new Map(before.rows.map((row) => [JSON.stringify([row.faults, row.on]), { ...row }]))
  for (const row of now.rows) {
    const key = JSON.stringify([row.faults, row.on])
    const sum = rows.get(key)
    if (sum === undefined) rows.set(key, row)
    else for (const column of ["tried", ...VIOLATIONS] as const) sum[column] += row[column]
  }
  return { ...now, slices: { ...before.slices, ...now.slices }, rows: [...rows.values()] }
}

/**
 * Returns the share of its faults that a suite has tried, in percent. The number of calls differs a little between the
 * runs of the slices, and so does the number of faults.
 */
export function shareOf({ points, slices }: TallyFile): number {
  if (points === undefined || slices === undefined) return 100
  const tried = Object.values(slices).reduce((sum, tries) => sum + tries, 0)
  return Math.min((tried * 100) / points, 100)
}

/** Counts the violation of faults by their class. */
export class Tally {
  readonly #suite: string
  readonly #title: string
  readonly #rows = new Map<string, TallyRow>()
  #points = 0
  #tries = 0

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

  /** Adds faults that the suite could try. */
  addPoints(count: number): void {
    this.#points += count
  }

  /** Counts one try, whether or not its fault was injected. */
  tried(): void {
    this.#tries++
  }

  get rows(): TallyRow[] {
    return [...this.#rows.values()]
  }

  /**
   * Writes the file after the long run. A sample, or a part of the tests, only prints it. Does nothing without runs.
   * @param suite the tests that count, at their end
   */
  async close(suite: Tests): Promise<void> {
    if (this.#rows.size === 0) return
    const slice = this.#points > 0 ? SLICE : undefined
    const slices = slice && { points: this.#points, slices: { [`${slice.number}/${slice.of}`]: this.#tries } }
    const file: TallyFile = { title: this.#title, seed: SEED, ...slices, rows: this.rows }
    console.log(`${this.#suite}: ${JSON.stringify(file)}`)
    if (!EVERYTHING || ONLY !== undefined || !isWhole(suite)) return
    await mkdir(FOLDER, { recursive: true })
    const path = join(FOLDER, `${this.#suite}.json`)
    const all = slice ? withEarlier(file, await readTally(path)) : file
    if (slice)
      console.log(`${this.#suite}: ${shareOf(all).toFixed(1)} % of ${this.#points} faults tried by seed ${SEED}`)
    await writeFile(path, `${JSON.stringify(all, undefined, 2)}\n`)
  }
}

/** A test, or a suite of them. */
interface Tests {
  result?: { state: string }
  tasks?: readonly Tests[]
}

/** Returns true if each test has passed or failed: none was left out by `-t`, or not reached. */
function isWhole({ result, tasks }: Tests): boolean {
  return tasks === undefined ? /^(pass|fail)$/.test(result?.state ?? "") : tasks.every(isWhole)
}

async function readTally(path: string): Promise<TallyFile | undefined> {
  const text = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined
    throw error
  })
  return text === undefined ? undefined : (JSON.parse(text) as TallyFile)
}
