import type { Environment } from "./context.ts"
import { usageError } from "./exit.ts"

/**
 * Returns the variables of an env file, as `docker run --env-file` reads it
 * (https://docs.docker.com/reference/cli/docker/container/run/#env): a variable on each line, its value as it stands. A
 * name alone takes its value from the environment, and is left out without one. Leading blanks, empty lines and lines
 * that begin with `#` don't count.
 * @param path of the file, for messages
 * @throws Failure that names the file and the line
 */
export function parseEnvFile(path: string, bytes: Uint8Array, environment: Environment): Record<string, string> {
  const variables = new Map<string, string>()
  for (const [index, text] of linesOf(path, bytes).entries()) {
    const line = text.replace(/^\p{White_Space}+/u, "")
    if (line === "" || line.startsWith("#")) continue
    const at = line.indexOf("=")
    const name = at < 0 ? line : line.slice(0, at)
    const where = `--env-file ${path}, line ${index + 1}`
    // The line may be a secret: only its name is repeated.
    if (name === "") throw usageError(`${where} has no name before "=": write NAME=VALUE.`)
    if (/[ \t]/.test(name))
      throw usageError(`${where}: the name ${JSON.stringify(name)} has a blank: write NAME=VALUE.`)
    const value = at < 0 ? environment[name] : line.slice(at + 1)
    if (value !== undefined) variables.set(name, value)
  }
  return Object.fromEntries(variables)
}

/** Decodes the lines, without a mark of the byte order. */
function linesOf(path: string, bytes: Uint8Array): string[] {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes).split(/\r?\n|\r$/)
  } catch {
    throw usageError(`--env-file ${path} is not UTF-8: save it as UTF-8.`)
  }
}
