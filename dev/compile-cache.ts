import { getCompileCacheDir } from "node:module"
import { dirname } from "node:path"

/**
 * Passes this program's compile cache, if it has one, to a Node.js program that it starts. That halves its start time.
 */
export function compileCache(): { NODE_COMPILE_CACHE?: string } {
  // Node.js returns the folder of its own version, inside the configured one.
  const folder = getCompileCacheDir()
  return folder === undefined ? {} : { NODE_COMPILE_CACHE: dirname(folder) }
}
