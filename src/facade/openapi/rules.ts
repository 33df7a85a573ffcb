import type { Additions } from "../../http/json-schema.ts"
import { inFormat } from "../../http/json-schema.ts"

/** What every body may repeat of the host. */
export const OWNER_RULES: Additions = {
  "/properties/project_id": inFormat("project-id"),
  "/properties/organization_id": inFormat("organization-id"),
}
