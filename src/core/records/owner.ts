import type { ProjectScope } from "../identity/principal.ts"

/** Ids of an object's project and of its organization. */
export interface Owner {
  projectId: string
  organizationId: string
}

/** Returns the owner of everything in a project. */
export function toOwner({ id, organizationId }: ProjectScope): Owner {
  return { projectId: id, organizationId }
}
