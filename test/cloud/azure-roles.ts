import { readFileSync } from "node:fs"
import { join } from "node:path"

/** Role in the form of Azure's command line. */
export interface Role {
  Name: string
  Actions: string[]
}

/** Returns the two roles that users create by docs/azure.md: for VMs, and for Berth. */
export function documentedRoles(): { vm: Role; berth: Role } {
  return { vm: roleIn("azure-vm.json"), berth: roleIn("azure.json") }
}

function roleIn(name: string): Role {
  return JSON.parse(readFileSync(join(import.meta.dirname, "..", "..", "docs", "roles", name), "utf8")) as Role
}
