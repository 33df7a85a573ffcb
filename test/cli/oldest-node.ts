import { join } from "node:path"
import { cached, runLogged } from "../cached.ts"

/** Package of npm with the oldest Node.js that the command `berth` runs on, for this machine. It has no scripts. */
const PACKAGE = `node-${process.platform}-${process.arch}`
const VERSION = "22.12.0"

/** Installs that Node.js once into the cache directory. @returns the path of the program */
export async function oldestNode(): Promise<string> {
  const program = join("node_modules", PACKAGE, "bin", "node")
  const make = async (directory: string): Promise<void> => {
    const flags = ["--no-audit", "--no-fund", "--ignore-scripts"]
    await runLogged("npm", ["install", "--prefix", directory, ...flags, `${PACKAGE}@${VERSION}`], () => undefined)
  }
  return join(await cached({ name: `${PACKAGE}-${VERSION}`, proof: program, make }), program)
}
