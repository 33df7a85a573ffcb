import { execFile } from "node:child_process"
import { chmod, mkdir, writeFile } from "node:fs/promises"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { dirname, join } from "node:path"
import { text } from "node:stream/consumers"
import { promisify } from "node:util"
import { commandsIn } from "../documents.ts"

const run = promisify(execFile)

/** Returns the commands of a section of docs/operate.md. @throws Error without any */
export function commandsOf(heading: string): string[] {
  return commandsIn("docs/operate.md", heading)
}

/** Programs that a test replaces: each gets its arguments, and acts on what runs in the test. */
export type Replacements = Record<string, (command: string) => Promise<string | undefined>>

export interface ShellOptions {
  /** Folder in which the commands run. Files that they write stay there. */
  folder: string
  /** Real programs by name. */
  programs: Record<string, string>
  /** Undefined as an answer: the real program runs. */
  replacements: Replacements
  env: Record<string, string>
}

/** A shell with an operator's programs, for the commands of the page. */
export class Shell {
  readonly #options: ShellOptions
  #url = ""
  readonly #server = createServer(async (request, response) => {
    const [name = "", ...words] = (await text(request)).split("\n")
    try {
      const answer = await this.#options.replacements[name]?.(words.join(" "))
      response.writeHead(answer === undefined ? 204 : 200).end(answer)
    } catch (error) {
      response.writeHead(500).end(String(error))
    }
  })

  constructor(options: ShellOptions) {
    this.#options = options
  }

  async open(): Promise<this> {
    const { folder, programs, replacements } = this.#options
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve))
    this.#url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
    await mkdir(join(folder, "bin"), { recursive: true })
    for (const name of new Set([...Object.keys(programs), ...Object.keys(replacements)])) {
      const path = join(folder, "bin", name)
      await writeFile(path, shim(name, programs[name], Object.hasOwn(replacements, name)))
      await chmod(path, 0o755)
    }
    return this
  }

  /** Runs a block. @returns its standard output @throws Error with its standard error */
  async run(block: string): Promise<string> {
    const { folder, env } = this.#options
    const own = { PATH: `${join(folder, "bin")}:${dirname(process.execPath)}:${process.env["PATH"]}`, HOME: folder }
    const options = { cwd: folder, env: { ...own, ...env, HOOK: this.#url }, maxBuffer: 64 * 1024 * 1024 }
    try {
      return (await run("bash", ["--norc", "-euo", "pipefail", "-c", block], options)).stdout
    } catch (error) {
      const { stdout = "", stderr = "" } = error as { stdout?: string; stderr?: string }
      throw new Error(`the page's command failed:\n${block}\n${stdout}${stderr}`, { cause: error })
    }
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}

/** Quotes a text for a shell. */
function quoted(words: string): string {
  return `'${words.replaceAll("'", "'\\''")}'`
}

/** Asks the test first, if it replaces the program. */
function shim(name: string, program: string | undefined, isReplaced: boolean): string {
  const real =
    program === undefined
      ? `echo "${name} is not here" >&2; exit 127`
      : `PATH=${quoted(process.env["PATH"] ?? "")} exec ${program} "$@"`
  if (!isReplaced) return `#!/bin/bash\n${real}\n`
  return `#!/bin/bash
node -e '
fetch(process.env.HOOK, { method: "POST", body: process.argv.slice(1).join("\\n") }).then(async (answer) => {
  if (answer.status !== 204) (answer.ok ? process.stdout : process.stderr).write(await answer.text() + "\\n")
  process.exitCode = answer.status === 204 ? 99 : answer.ok ? 0 : 1
})' ${name} "$@" < /dev/null
code=$?
[ $code -eq 99 ] || exit $code
${real}
`
}
