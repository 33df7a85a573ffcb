import type { FieldError } from "../core/apis/validate.ts"
import type { Owner } from "../core/records/owner.ts"
import type { Rule } from "./http/checked.ts"
import { inFormat } from "./http/json-schema.ts"

/** Rule of the owner's fields: a body may only repeat the owner that the address names. */
export const OWNER: Rule<Owner> = {
  keywords: {
    "/properties/project_id": inFormat("project-id"),
    "/properties/organization_id": inFormat("organization-id"),
  },
  errors: ({ project_id, organization_id }, { projectId, organizationId }) => [
    ...ownerErrors("project_id", project_id, projectId),
    ...ownerErrors("organization_id", organization_id, organizationId),
  ],
}

function ownerErrors(field: string, given: unknown, own: string): FieldError[] {
  if (typeof given !== "string" || given === own) return []
  const detail = `${field} must be omitted or "${own}", as in the request's address`
  return [{ pointer: `/${field}`, detail }]
}
