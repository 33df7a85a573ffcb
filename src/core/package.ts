import { readFileSync } from "node:fs"
import { findPackageJSON } from "node:module"
import { dirname, join } from "node:path"

/** The package that this program is run from: the repository, or a bundle, which has the same files at the same paths. */
const MANIFEST = findPackageJSON(import.meta.url)

/** A file of the package. @throws Error when the program lies in no package: it has been copied without its files */
export function packageFile(...path: string[]): string {
  if (MANIFEST === undefined) throw new Error(`${import.meta.url} has no package.json beside it: copy all of dist/`)
  return join(dirname(MANIFEST), ...path)
}

/** Returns the version of the package. */
export function packageVersion(): string {
  const { version } = JSON.parse(readFileSync(packageFile("package.json"), "utf8")) as { version: string }
  return version
}
