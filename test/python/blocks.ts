import { readFile } from "node:fs/promises"
import { join } from "node:path"

const PAGE = join(import.meta.dirname, "..", "..", "docs", "python.md")

/** Image of the page's examples. */
export const IMAGE = "busybox:1.36"

/** Returns the examples of docs/python.md in their order. */
export async function pythonBlocks(): Promise<string[]> {
  const text = await readFile(PAGE, "utf8")
  return [...text.matchAll(/^```python\n([\s\S]*?)^```$/gm)].map(([, block = ""]) => block)
}
