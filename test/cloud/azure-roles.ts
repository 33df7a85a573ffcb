import { readFileSync } from "node:fs"
import { join } from "node:path"

/** A role as Azure's command line takes it. */
export interface Role {
  Name: string
  Actions: string[]
}

/** The two roles that docs/azure.md has people make: what VMs may do, and what Berth may. */
export function documentedRoles(): { vm: Role; berth: Role } {
  const page = readFileSync(join(import.meta.dirname, "..", "..", "docs", "azure.md"), "utf8")
  const [vm, berth] = [...page.matchAll(/```json\n([\s\S]*?)```/g)].map(([, text = ""]) => JSON.parse(text) as Role)
  if (vm === undefined || berth === undefined) throw new Error("docs/azure.md has no two roles in JSON")
  return { vm, berth }
}
