import { createHash } from "node:crypto"
import { readFile } from "node:fs/promises"
import { basename, join } from "node:path"
import { cached, runLogged } from "./cached.ts"

/**
 * Creates a Python virtual environment with exactly the packages of a requirements file, once in the cache directory.
 * @returns the folder with its programs
 */
export async function pythonEnvironment(name: string, requirementsPath: string): Promise<string> {
  const requirements = await readFile(requirementsPath, "utf8")
  const version = requirements.match(new RegExp(`^${name}==(.+)$`, "m"))?.[1]
  if (version === undefined) throw new Error(`${basename(requirementsPath)} does not pin ${name}`)
  const digest = createHash("sha256").update(requirements).digest("hex").slice(0, 8)
  const make = (directory: string): Promise<void> => install(name, directory, requirementsPath)
  const directory = await cached({ name: `${name}-${version}-${digest}`, proof: join("bin", "python"), make })
  return join(directory, "bin")
}

async function install(name: string, directory: string, requirementsPath: string): Promise<void> {
  // Uses standard error, because standard output may be one JSON object of a benchmark.
  const say = (line: string): void => console.error(`${name}: ${line}`)
  say(`installing from PyPI into ${directory}, this once`)
  const ignore = (): undefined => undefined
  await runLogged("python3", ["-m", "venv", directory], ignore).catch((cause: unknown) => {
    throw new Error(`${name} needs Python 3.10 or newer with venv (Debian: python3-venv)`, { cause })
  })
  const pip = ["-m", "pip", "install", "--no-input", "--disable-pip-version-check", "-r", requirementsPath]
  const python = join(directory, "bin", "python")
  await runLogged(python, pip, (line) => /^(Installing|Successfully)/.test(line) && say(line))
}
