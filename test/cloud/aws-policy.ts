import { readFileSync } from "node:fs"
import { join } from "node:path"

interface Statement {
  Sid?: string
  Effect: string
  Action: string | string[]
}

/** Returns the statements of the policy in docs/roles/aws.json. */
export function roleStatements(): Statement[] {
  const path = join(import.meta.dirname, "..", "..", "docs", "roles", "aws.json")
  return (JSON.parse(readFileSync(path, "utf8")) as { Statement: Statement[] }).Statement
}

/**
 * Returns the actions of the policy that users create by docs/install.md. docs/aws.md has further statements, which are
 * optional.
 */
export function documentedActions(): string[] {
  return roleStatements().flatMap(({ Action }) => Action)
}
