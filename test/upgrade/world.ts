import { mkdir, readdir, readFile, writeFile } from "node:fs/promises"
import { join } from "node:path"

/** One run of a container, as its own lines say. */
export interface Run {
  /** `BERTH_LAUNCH`: number of the Launch among those of its job. */
  launch: number
  /** Folder of the machine's agent. */
  machine: string
  /** True once the script has come to its end. */
  ended: boolean
}

/**
 * Files outside of Berth, to which containers write when they begin and end. So what ran, and how often, is read from the
 * world, whatever Berth says. The containers are processes of this host.
 */
export class World {
  readonly #folder: string

  private constructor(folder: string) {
    this.#folder = folder
  }

  static async create(folder: string): Promise<World> {
    await mkdir(folder, { recursive: true })
    return new World(folder)
  }

  /**
   * Returns a shell script that writes a line at its beginning, runs `body`, and writes a line at its end. `body` may end
   * it earlier with `over CODE`.
   */
  script(name: string, body: string): string {
    const tell = (what: string) => `echo "${what} $$ $BERTH_LAUNCH $HOME" >> ${this.file(name)}`
    return `over() { ${tell("end")}; exit $1; }; ${tell("start")}; ${body}; over 0`
  }

  /** Shell command that waits until the gate is open. */
  wait(gate: string): string {
    return `until [ -e ${this.gate(gate)} ]; do sleep 0.1; done`
  }

  async open(...gates: string[]): Promise<void> {
    for (const gate of gates) await writeFile(this.gate(gate), "")
  }

  /** Shell command that prints a line, and writes it to a file that `said` reads. */
  say(name: string, line: string): string {
    return `{ echo "${line}"; echo "${line}" >> ${this.#said(name)}; }`
  }

  /** Returns all that containers of this name said by `say`. */
  async said(name: string): Promise<string> {
    return await readFile(this.#said(name), "utf8").catch(() => "")
  }

  /** Returns the runs of this name, in the order of their beginning. */
  async runs(name: string): Promise<Run[]> {
    const text = await readFile(this.file(name), "utf8").catch(() => "")
    const lines = text.split("\n").filter((line) => line !== "")
    const ends = lines.filter((line) => line.startsWith("end "))
    return lines
      .filter((line) => line.startsWith("start "))
      .map((line) => {
        const [, pid, launch, machine = ""] = line.split(" ")
        const ended = ends.filter((end) => end === `end ${pid} ${launch} ${machine}`)
        if (ended.length > 1) throw new Error(`a run of ${name} ended ${ended.length} times: ${text}`)
        return { launch: Number(launch), machine, ended: ended.length === 1 }
      })
  }

  /** Returns the names that have run. */
  async names(): Promise<string[]> {
    const files = await readdir(this.#folder)
    return files.flatMap((file) => (file.startsWith("run-") ? [file.slice(4)] : [])).sort()
  }

  /** Path of the file with the runs of this name. */
  file(name: string): string {
    return join(this.#folder, `run-${name}`)
  }

  /** Path of the file that opens a gate. */
  gate(gate: string): string {
    return join(this.#folder, `gate-${gate}`)
  }

  #said(name: string): string {
    return join(this.#folder, `said-${name}`)
  }
}
