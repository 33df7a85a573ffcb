import { globSync, readFileSync } from "node:fs"
import { dirname, join } from "node:path"
import jsTokens from "js-tokens"

/**
 * Checks the words of what people read: comments, docstrings, messages, documents and the titles of tests.
 * CONTRIBUTING.md has the rules under "Words". `scripts/prose-pending.txt` lists the files and folders that are not
 * rewritten yet. An entry without findings is an error, so that the list only shrinks.
 */

/** Files that are checked. Those that `npm run generate` writes are checked where their words come from. */
const CHECKED = [
  "*.md",
  ".github/**/*.{md,yml}",
  "action/*.{mjs,yml}",
  "{bench,dev,scripts,src,test}/**/*.{ts,tsx,mjs}",
  "charts/berth/{README.md,values.yaml,templates/NOTES.txt}",
  "docs/{,decisions/}*.md",
  "manifests/samples/**/*.yaml",
]
/** Records of the past, generated files, and the examples of this check. */
const EXEMPT = ["CHANGELOG.md", "docs/values.md", "test/prose.test.ts"]

const PENDING = "scripts/prose-pending.txt"

const MAXIMUM_WORDS = 20

/** Patterns that are not allowed, each with words to use instead. */
const BANNED: readonly [pattern: RegExp, instead: string][] = [
  [/\banew\b/gi, "again"],
  [/\breckon(?:s|ed|ing)?\b/gi, "count, estimate, calculate"],
  [/\bwhoever\b/gi, "a noun: the caller, the user"],
  [/\bnobody\b/gi, "a noun and its verb: no user can, the caller must not"],
  // To tell two things apart is plain English.
  [/\b(?:tells?|telling|told)\b(?!(?:\s+\S+){0,4}\s+apart\b)/gi, "report, return, say, show"],
  // "410 Gone" is HTTP's own word.
  [/(?<!410 )\b(?:goes|gone)\b/gi, "is deleted, has ended, moves"],
  [/\b(?:is|are|was|were|be|been)\s+made\s+of\b/gi, "consists of, is built from"],
  [/\bfor\s+the\s+moment\b/gi, "now, currently"],
  [/\bas\s+if\b/gi, "like, as when"],
  // "by that key" is plain English: only the phrase at the end of a clause is meant.
  [/\bby\s+that\b(?=\s*(?:[.,;:)]|$))/gi, "so, thus"],
  [/\bso\s+long\b/gi, "as long as, while"],
  [/\bshall\b/gi, "must, will"],
]

/**
 * Start of a test's title that continues another sentence. The title is the first argument of a test, or of the call
 * that `each` returns.
 */
const FRAGMENT =
  /(?:\b(?:describe|it|(?<!\.)test)|\))\(\s*["'`](of|and|also|or|which|whose|that|with|without|by|for|from|in|on|at|as|if|when|while|until|after|before|because)\b/gi

const TESTS = /^test\/|\.test\.tsx?$/

const QUESTION = /^\s*(?:What|Whether|Who|How|Where|When|Why)\b/

/** A piece of text that people read. */
export interface Passage {
  text: string
  /** Line of its first character in the file, from 1. */
  line: number
  kind: "docstring" | "comment" | "string" | "document"
}

/** Returns one line for each banned word, and for a docstring that begins with a question word. Pure. */
export function findingsIn(passages: readonly Passage[]): string[] {
  return passages.flatMap(({ text, line, kind }) => {
    const words = BANNED.flatMap(([pattern, instead]) =>
      [...text.matchAll(pattern)].map(({ 0: found, index }) => {
        const at = line + newlines(text.slice(0, index))
        return `${at}: "${found.replaceAll(/\s+/g, " ")}" is a banned word; instead: ${instead}`
      }),
    )
    const [start] = kind === "docstring" ? (QUESTION.exec(text) ?? []) : []
    if (start === undefined) return words
    return [`${line}: a docstring begins with a verb or a noun, not with "${start.trim()}"`, ...words]
  })
}

/** Returns one line for each title of a test that is half a sentence. Pure. */
export function titleFindingsIn(program: string): string[] {
  return [...program.matchAll(FRAGMENT)].map(({ 0: call, 1: word, index }) => {
    const line = 1 + newlines(program.slice(0, index + call.length))
    return `${line}: a title begins with a subject or a verb, not with "${word}"`
  })
}

/** Returns how many sentences have more than 20 words. Pure. */
export function longSentencesIn(passages: readonly Passage[]): number {
  const sentences = passages.flatMap(({ text }) =>
    text.split(/[.!?](?=\**(?:\s|$))|\n\s*\n|\n\s*(?:[-*]|\d+\.|#+)\s|\|/),
  )
  return sentences.filter((sentence) => (sentence.match(/[\p{L}\p{N}·]\S*/gu) ?? []).length > MAXIMUM_WORDS).length
}

/** Returns what people read of a file: the comments and strings of a program, the comments of YAML, else all. Pure. */
export function passagesOf(path: string, content: string): Passage[] {
  const passages = /\.m?[jt]sx?$/.test(path)
    ? passagesOfProgram(content, path.endsWith("x"))
    : /\.ya?ml$/.test(path)
      ? passagesOfYaml(content)
      : [{ text: withoutMarkup(content), line: 1, kind: "document" as const }]
  return passages.map((passage) => ({ ...passage, text: passage.text.replaceAll(/`[^`]*`/g, masked) }))
}

/** @param jsx true if the program has elements, whose texts people read */
function passagesOfProgram(content: string, jsx: boolean): Passage[] {
  const passages: Passage[] = []
  let line = 1
  let lineComment: Passage | undefined
  for (const { type, value } of jsTokens(content, { jsx })) {
    if (type === "SingleLineComment") {
      // Sentences span the lines of a comment.
      if (lineComment === undefined) {
        lineComment = { text: value.slice(2), line, kind: "comment" }
        passages.push(lineComment)
      } else lineComment.text += `\n${value.slice(2)}`
    } else if (type !== "WhiteSpace" && type !== "LineTerminatorSequence") {
      lineComment = undefined
      if (type === "MultiLineComment") passages.push(blockComment(value, line))
      else if (isPhrase(type, value)) passages.push({ text: value, line, kind: "string" })
    }
    line += newlines(value)
  }
  return passages
}

function blockComment(value: string, line: number): Passage {
  const text = value.slice(2, -2).replaceAll(/^[ \t]*\*+ ?/gm, "")
  return { text, line, kind: value.startsWith("/**") ? "docstring" : "comment" }
}

/** A string or a piece of a template with at least two words. One word alone is a name. */
function isPhrase(type: string, value: string): boolean {
  return /String|Template|JSXText/.test(type) && /[a-z,;:.)]\s+[a-z(]/i.test(value)
}

function passagesOfYaml(content: string): Passage[] {
  const passages: Passage[] = []
  for (const [index, text] of content.split("\n").entries()) {
    const [, comment] = /(?:^|\s)#\s?(.*)$/.exec(text) ?? []
    const last = passages.at(-1)
    if (comment === undefined) continue
    if (last !== undefined && last.line + newlines(last.text) === index) last.text += `\n${comment}`
    else passages.push({ text: comment, line: index + 1, kind: "comment" })
  }
  return passages
}

/** Masks code, the targets of links, and text that is struck through: an example of what not to write. */
function withoutMarkup(markdown: string): string {
  return markdown
    .replaceAll(/^(```|~~~)[\s\S]*?^\1|(?<=\n\n)(?: {4}.*\n)+/gm, blank)
    .replaceAll(/`[^`]*`|~~[^~]*~~|\]\([^)]*\)|https?:\S+/g, masked)
}

/** Keeps lines as they are, and makes one word of the rest. */
function masked(text: string): string {
  return text.replaceAll(/[^\n]/g, "·")
}

/** Keeps lines only: a block of code ends the sentence before it. */
function blank(text: string): string {
  return text.replaceAll(/[^\n]/g, "")
}

function newlines(text: string): number {
  return text.split("\n").length - 1
}

/** Returns what is wrong in the repository at `root`, and how many sentences are too long. */
export function checkProse(root: string): { errors: string[]; longSentences: number } {
  const pending = readFileSync(join(root, PENDING), "utf8")
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"))
  const hasFindings = new Set<string>()
  const errors: string[] = []
  let longSentences = 0
  for (const path of globSync(CHECKED, { cwd: root, exclude: EXEMPT }).toSorted()) {
    const content = readFileSync(join(root, path), "utf8")
    const passages = passagesOf(path, content)
    longSentences += longSentencesIn(passages.filter(({ kind }) => kind !== "string"))
    const findings = [...findingsIn(passages), ...(TESTS.test(path) ? titleFindingsIn(content) : [])]
    const entry = pending.find((one) => one === path || one === `${dirname(path)}/`)
    if (entry === undefined) errors.push(...findings.map((finding) => `${path}:${finding}`))
    else if (findings.length > 0) hasFindings.add(entry)
  }
  const clean = pending.filter((entry) => !hasFindings.has(entry))
  return {
    errors: [...errors, ...clean.map((entry) => `${PENDING}: ${entry} is clean: remove this line`)],
    longSentences,
  }
}

if (import.meta.main) {
  const { errors, longSentences } = checkProse(dirname(import.meta.dirname))
  for (const error of errors) console.error(error)
  console.log(`prose: ${longSentences} sentences have more than ${MAXIMUM_WORDS} words (not an error)`)
  if (errors.length > 0) process.exitCode = 1
}
