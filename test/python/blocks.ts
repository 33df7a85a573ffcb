import { readFile } from "node:fs/promises"
import { join } from "node:path"

const DOCS = join(import.meta.dirname, "..", "..", "docs")

/** Image of the page's examples. */
export const IMAGE = "busybox:1.36"

/** Returns the examples of a page in their order. */
export async function pythonBlocks(page = "python.md"): Promise<string[]> {
  const text = await readFile(join(DOCS, page), "utf8")
  return [...text.matchAll(/^```python\n([\s\S]*?)^```$/gm)].map(([, block = ""]) => block)
}
