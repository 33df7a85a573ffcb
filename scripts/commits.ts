import { spawnSync } from "node:child_process"

/** Checks the subjects of commits. `scripts/verify.ts` runs it; the rule is here so that a test can import it. */

/** Last commit before the rule. Older subjects stay as they are. */
const BASE = "dc8d6c062a8565850ac30ffad3d1e32f28a6f8c3"

const MAXIMUM_LENGTH = 72

/** Returns why a commit's subject is not `area: imperative` in at most 72 characters; undefined if it is. Pure. */
export function subjectError(subject: string): string | undefined {
  // GitHub adds the pull request's number when it merges.
  const { length } = subject.replace(/ \(#\d+\)$/, "")
  if (length > MAXIMUM_LENGTH) return `has ${length} characters; at most ${MAXIMUM_LENGTH} are allowed`
  if (!/^[\w./-]+(?:,? [\w./-]+){0,2}: \S.*[^.]$/.test(subject))
    return 'is not of the form "area: imperative", without a full stop'
  return undefined
}

/** Returns one line for each wrong subject since the rule; a reason instead if there is no git history here. */
export function wrongSubjects(root: string): string[] | { skipped: string } {
  const git = (...args: string[]) => spawnSync("git", args, { cwd: root, encoding: "utf8" })
  if (git("rev-parse", "HEAD").status !== 0) return { skipped: "there is no git history" }
  // A shallow clone may lack the base: then everything that it has is newer.
  const range = git("cat-file", "-e", `${BASE}^{commit}`).status === 0 ? `${BASE}..HEAD` : "HEAD"
  const { stdout } = git("log", "--no-merges", "--format=%h %s", range)
  return stdout
    .split("\n")
    .filter((line) => line !== "")
    .flatMap((line) => {
      const [, hash = "", subject = ""] = /^(\S+) (.*)$/.exec(line) ?? []
      const error = subject.startsWith('Revert "') ? undefined : subjectError(subject)
      return error === undefined ? [] : [`${hash} "${subject}" ${error}`]
    })
}
