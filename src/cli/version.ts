import { readFileSync } from "node:fs"

/** Places of the package's manifest: beside the bundle, and above this file in the repository. */
const MANIFESTS = ["./package.json", "../../package.json"]

/** Returns the version of this package. */
export function version(): string {
  for (const path of MANIFESTS) {
    try {
      return (JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8")) as { version: string }).version
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error
    }
  }
  return "unknown"
}
