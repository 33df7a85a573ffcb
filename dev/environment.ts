import { readFile, rm, writeFile } from "node:fs/promises"
import { join } from "node:path"

/** The command `berth` of this repository. */
const COMMAND = join(import.meta.dirname, "..", "scripts", "berth.mjs")

/** Shell variables to reach a stack, and the command `berth`: `. .berth/env`. */
export interface StackEnvironment {
  url: string
  apiKey: string
  kubeconfig: string
  /** URL of the issuer that signs people in. */
  issuer: string
}

/**
 * Writes the file again, readable by its owner only, because it holds an admin's key. Deletes an old file first: a mode
 * applies only to a new file.
 */
export async function writeEnvironment(
  file: string,
  { url, apiKey, kubeconfig, issuer }: StackEnvironment,
): Promise<void> {
  const variables = { BERTH_URL: url, BERTH_API_KEY: apiKey, KUBECONFIG: kubeconfig, BERTH_OIDC_ISSUER: issuer }
  const assignments = Object.entries(variables).map(([name, value]) => `${name}=${shellWord(value)}`)
  const command = `berth() { ${shellWord(COMMAND)} "$@"; }`
  const text = [...assignments, `export ${Object.keys(variables).join(" ")}`, command, ""].join("\n")
  await rm(file, { force: true })
  await writeFile(file, text, { mode: 0o600 })
}

/** Returns the API key in such a file; undefined if there is no file or no key in it. */
export async function keptApiKey(file: string): Promise<string | undefined> {
  try {
    return /^BERTH_API_KEY=(\S+)$/m.exec(await readFile(file, "utf8"))?.[1]
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined
    throw new Error(`${file} can't be read: remove it, or choose another data directory`, { cause: error })
  }
}

/** Quotes if needed: POSIX shells take everything between single quotes literally. */
function shellWord(text: string): string {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text
  return `'${text.replaceAll("'", `'\\''`)}'`
}
