import { readFileSync } from "node:fs"
import { join } from "node:path"

/** Role in the form of Azure's command line. */
export interface Role {
  Name: string
  Actions: string[]
}

/** Returns the two roles that users create by docs/azure.md: for VMs, and for Berth. */
export function documentedRoles(): { vm: Role; berth: Role } {
  const page = readFileSync(join(import.meta.dirname, "..", "..", "docs", "azure.md"), "utf8")
  const [vm, berth] = [...page.matchAll(/```json\n([\s\S]*?)```/g)].map(([, text = ""]) => JSON.parse(text) as Role)
  if (vm === undefined || berth === undefined) throw new Error("docs/azure.md has no two roles in JSON")
  return { vm, berth }
}
