import { readFileSync } from "node:fs"
import { join } from "node:path"

const ROOT = join(import.meta.dirname, "..")

/**
 * Returns the commands of a section of a document: its fenced blocks for a shell.
 *
 * @param path from the root of the repository
 * @throws Error without any
 */
export function commandsIn(path: string, heading: string): string[] {
  const text = readFileSync(join(ROOT, path), "utf8")
  // Blocks first: the comments in them look like headings.
  const parts = [...text.matchAll(/^```(\w*)\n([\s\S]*?)^```$|^#+ (.*)$/gm)]
  const from = parts.findIndex(([, , , title]) => title === heading)
  const to = parts.findIndex(([, , , title], index) => index > from && title !== undefined)
  const section = from < 0 ? [] : parts.slice(from + 1, to < 0 ? undefined : to)
  const blocks = section.flatMap(([, language, block = ""]) => (language === "sh" ? [block] : []))
  if (blocks.length === 0) throw new Error(`${path} has no commands under "${heading}"`)
  return blocks
}
