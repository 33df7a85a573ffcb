import { isDeepStrictEqual } from "node:util"
import { condition, setConditions } from "../../core/apis/conditions.ts"
import {
  ORGANIZATION_FINALIZER,
  OrganizationCondition,
  type OrganizationStatus,
  type StoredOrganization,
} from "../../core/apis/organization.ts"
import type { Decision } from "../../core/runtime/reconcile-object.ts"

export type OrganizationAction = "addFinalizer" | "dropFinalizer"

/** Delay before checking again whether the projects of a deleted organization are deleted, seconds. */
const WAIT_SECONDS = 5

/** Decides what to do with an organization that has these projects. Its deletion waits for theirs. */
export function decide(
  organization: StoredOrganization,
  projects: readonly string[],
  now: Date,
): Decision<OrganizationStatus, OrganizationAction> {
  const { deletionTimestamp, finalizers } = organization.metadata
  const isHeld = finalizers?.includes(ORGANIZATION_FINALIZER) ?? false
  if (deletionTimestamp === undefined) {
    return { ...changedStatus(organization, [], now), actions: isHeld ? [] : ["addFinalizer"] }
  }
  if (!isHeld) return { actions: [] }
  if (projects.length === 0) return { actions: ["dropFinalizer"] }
  return { ...changedStatus(organization, projects, now), actions: [], requeueAfter: WAIT_SECONDS }
}

/** Maximum number of projects in a message. The others are counted. */
const NAMED = 5

/** Returns the status to write, or nothing if it is the same. */
function changedStatus(
  organization: StoredOrganization,
  blocking: readonly string[],
  now: Date,
): { status?: OrganizationStatus } {
  const { generation } = organization.metadata
  const isStalled = blocking.length > 0
  const more = blocking.length > NAMED ? ` and ${blocking.length - NAMED} more` : ""
  const cause = isStalled
    ? { reason: "HasProjects", message: `delete its projects first: ${blocking.slice(0, NAMED).join(", ")}${more}` }
    : { reason: "Active", message: "its members have their roles in its projects" }
  const updates = [
    condition(OrganizationCondition.Ready, !isStalled, cause),
    condition(OrganizationCondition.Stalled, isStalled, cause),
  ]
  const conditions = setConditions(organization.status?.conditions, updates, generation, now)
  const spending = organization.status?.spending
  const status = { conditions, observedGeneration: generation, ...(spending && { spending }) }
  return isDeepStrictEqual(status, organization.status) ? {} : { status }
}
