import { createHash } from "node:crypto"
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs"
import { homedir } from "node:os"
import { join } from "node:path"
import { type Context, type Environment, projectUrl } from "./context.ts"

/** Job or array that was submitted last. */
export interface Submitted {
  kind: "job" | "array"
  name: string
}

/** Returns the folder of what the command remembers: `~/.local/state/berth`. */
export function stateFolder(environment: Environment): string {
  const home = environment["XDG_STATE_HOME"] || join(environment["HOME"] ?? homedir(), ".local", "state")
  return join(home, "berth")
}

/**
 * Last submissions from this machine: a file for each project of an installation, in `~/.local/state/berth/last`. A file
 * is replaced at once, so commands at the same time don't disturb each other.
 */
export class LastSubmissions {
  readonly #folder: string

  constructor(environment: Environment) {
    this.#folder = join(stateFolder(environment), "last")
  }

  /** Returns the last submission to a context's project; undefined if there is none. */
  read(context: Context): Submitted | undefined {
    try {
      const { kind, name } = JSON.parse(readFileSync(this.#pathOf(context), "utf8")) as Partial<Submitted>
      return (kind === "job" || kind === "array") && typeof name === "string" ? { kind, name } : undefined
    } catch {
      // Without the file a command asks for the name.
      return undefined
    }
  }

  /** @throws Error of the file system */
  write(context: Context, submitted: Submitted): void {
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 })
    const path = this.#pathOf(context)
    const next = `${path}.${process.pid}`
    writeFileSync(next, `${JSON.stringify(submitted)}\n`, { mode: 0o600 })
    renameSync(next, path)
  }

  #pathOf(context: Context): string {
    return join(this.#folder, `${createHash("sha256").update(projectUrl(context)).digest("hex").slice(0, 32)}.json`)
  }
}
