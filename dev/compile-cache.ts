import { getCompileCacheDir } from "node:module"
import { dirname } from "node:path"

/** Lets a Node.js program that this one starts use its compile cache, if it has one: it starts in half the time then. */
export function compileCache(): { NODE_COMPILE_CACHE?: string } {
  // What Node.js tells is the folder of its own version, within the one that it was given.
  const folder = getCompileCacheDir()
  return folder === undefined ? {} : { NODE_COMPILE_CACHE: dirname(folder) }
}
