import { execFile } from "node:child_process"
import { createHash } from "node:crypto"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { promisify } from "node:util"
import { packPythonSources, pythonBuildPrograms, writePythonSources } from "../../scripts/python-package.ts"
import { cached, runLogged } from "../cached.ts"
import { pythonEnvironment } from "../python-environment.ts"

/** The package for Python, installed as its users install it. */

const REQUIREMENTS = join(import.meta.dirname, "requirements.txt")

/** Returns a folder with the wheels that the package and its build need. They are downloaded from PyPI once. */
export async function pythonWheels(): Promise<string> {
  const digest = createHash("sha256")
    .update(await readFile(REQUIREMENTS))
    .digest("hex")
    .slice(0, 8)
  const make = async (directory: string): Promise<void> => {
    const flags = ["--no-input", "--disable-pip-version-check", "--only-binary", ":all:"]
    const args = ["-m", "pip", "download", ...flags, "--dest", directory, "-r", REQUIREMENTS]
    await runLogged(await pythonWithPip(), args, () => undefined)
  }
  return await cached({ name: `berth-jobs-wheels-${digest}`, proof: "", make })
}

/** Returns the folder of a Python that runs notebooks. */
export function notebookPython(): Promise<string> {
  return pythonEnvironment("nbclient", join(import.meta.dirname, "notebook-requirements.txt"))
}

/** The package in a new virtual environment. */
export interface InstalledPackage {
  python: string
  wheel: string
  sdist: string
  /** Folder with its complete sources. */
  sources: string
}

/** Builds the package, and installs its wheel into a virtual environment that has nothing else. */
export async function installPackage(folder: string): Promise<InstalledPackage> {
  const sources = join(folder, "sources")
  await writePythonSources(sources)
  const packed = await packPythonSources(sources, join(folder, "dist"))
  return { ...packed, sources, python: await freshPython(join(folder, "venv"), packed.wheel) }
}

/** Creates a virtual environment with a package and what it needs. @returns its Python */
export async function freshPython(folder: string, packed: string): Promise<string> {
  const run = promisify(execFile)
  await run("python3", ["-m", "venv", "--without-pip", folder])
  const python = join(folder, "bin", "python")
  // Also the build of an sdist finds its programs there.
  const env = { ...process.env, PIP_NO_INDEX: "1", PIP_FIND_LINKS: await pythonWheels() }
  const pip = ["-m", "pip", "--python", python, "--no-input", "--disable-pip-version-check"]
  await run(await pythonWithPip(), [...pip, "install", packed], { env })
  return python
}

/** Returns a Python that has pip. Debian's has none of its own. */
async function pythonWithPip(): Promise<string> {
  return join(await pythonBuildPrograms(), "python")
}
