import type { ProjectScope } from "../identity/principal.ts"

/** The project of an object and its organization, by their ids. */
export interface Owner {
  projectId: string
  organizationId: string
}

/** Returns the owner of everything in a project. */
export function ownerOf({ id, organizationId }: ProjectScope): Owner {
  return { projectId: id, organizationId }
}
