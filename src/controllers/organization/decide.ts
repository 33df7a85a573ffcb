import { isDeepStrictEqual } from "node:util"
import { setCondition } from "../../apis/conditions.ts"
import { ORGANIZATION_FINALIZER, type OrganizationStatus, type StoredOrganization } from "../../apis/organization.ts"

export interface OrganizationDecision {
  /** To be written before the action; undefined: as it is. */
  status?: OrganizationStatus
  action?: "addFinalizer" | "dropFinalizer"
  /** Seconds after which what no watch tells may have changed. */
  requeueAfter?: number
}

/** How often it is looked whether the projects of a deleted organization are gone, seconds. */
const WAIT_SECONDS = 5

/** What is to be done about an organization that has these projects. It goes after the last of them. Pure. */
export function decide(organization: StoredOrganization, projects: readonly string[], now: Date): OrganizationDecision {
  const { deletionTimestamp, finalizers } = organization.metadata
  const isHeld = finalizers?.includes(ORGANIZATION_FINALIZER) ?? false
  if (deletionTimestamp === undefined) {
    return { ...changed(organization, [], now), ...(!isHeld && { action: "addFinalizer" }) }
  }
  if (!isHeld) return {}
  if (projects.length === 0) return { action: "dropFinalizer" }
  return { ...changed(organization, projects, now), requeueAfter: WAIT_SECONDS }
}

/** Projects that are named in a message; the rest is counted. */
const NAMED = 5

function changed(
  organization: StoredOrganization,
  holding: readonly string[],
  now: Date,
): { status?: OrganizationStatus } {
  const { generation } = organization.metadata
  const isHeld = holding.length > 0
  const more = holding.length > NAMED ? ` and ${holding.length - NAMED} more` : ""
  const why = isHeld
    ? { reason: "HasProjects", message: `delete its projects first: ${holding.slice(0, NAMED).join(", ")}${more}` }
    : { reason: "Active", message: "its members have their roles in its projects" }
  const ready = { type: "Ready", status: isHeld ? "False" : "True", ...why } as const
  const conditions = setCondition(organization.status?.conditions, ready, generation, now)
  const stalled = { type: "Stalled", status: isHeld ? "True" : "False", ...why } as const
  const status = {
    conditions: setCondition(conditions, stalled, generation, now),
    observedGeneration: generation,
  }
  return isDeepStrictEqual(status, organization.status) ? {} : { status }
}
