import { readFileSync } from "node:fs"
import { join } from "node:path"

interface Statement {
  Sid?: string
  Effect: string
  Action: string | string[]
}

/** Returns the actions that docs/aws.md lets users allow: its policies, and the single statements to add. */
export function documentedActions(): string[] {
  const page = readFileSync(join(import.meta.dirname, "..", "..", "docs", "aws.md"), "utf8")
  return [...page.matchAll(/```json\n([\s\S]*?)```/g)].flatMap(([, text = ""]) => {
    const document = JSON.parse(text) as { Statement?: Statement[] } | Statement
    const statements = "Statement" in document ? (document.Statement ?? []) : [document as Statement]
    return statements.flatMap(({ Action = [] }) => Action)
  })
}
