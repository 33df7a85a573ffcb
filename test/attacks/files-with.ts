import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"

/** Returns the paths of all files below a folder that contain the text. */
export async function filesWith(text: string, folder: string): Promise<string[]> {
  const found = await readdir(folder, { recursive: true, withFileTypes: true })
  const files = found.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name))
  const read = await Promise.all(files.map(async (path) => [path, await readFile(path)] as const))
  return read.filter(([, content]) => content.includes(text)).map(([path]) => path)
}
