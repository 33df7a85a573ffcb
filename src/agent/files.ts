import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from "node:fs"

/** Replaces a file as a whole, readable by its owner only: after a crash it holds either the old or the new text. */
export function replaceFile(path: string, text: string): void {
  const temporary = `${path}.tmp`
  const file = openSync(temporary, "w", 0o600)
  try {
    writeSync(file, text)
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
  renameSync(temporary, path)
}

/** The file's text; undefined when there is no such file. */
export function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8")
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined
    throw error
  }
}
