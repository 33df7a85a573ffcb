import type { SpendCaps } from "../../../core/apis/caps.ts"
import { ANNOTATIONS, API_VERSION, type ObjectMeta } from "../../../core/apis/meta.ts"
import {
  ORGANIZATION,
  type Organization,
  type OrganizationRole,
  type StoredOrganization,
} from "../../../core/apis/organization.ts"
import { PROJECT, type Project, type StoredProject } from "../../../core/apis/project.ts"
import type { User } from "../../../core/identity/oidc.ts"
import { accountTroubles } from "../../../core/records/conditions.ts"
import type { Idempotency } from "../../idempotency.ts"
import { idempotencyMarks } from "../../idempotency-marks.ts"
import type {
  MemberRecord,
  OrganizationCreation,
  OrganizationRecord,
  ProjectCreation,
  ProjectRecord,
  ProjectUpdate,
} from "./schema.ts"

/** Metadata of an object to create. */
export interface AccountIdentity {
  id: string
  /** RFC 3339 with microseconds. */
  createdAt: string
  idempotency?: AccountIdempotency | undefined
}

/** Identity of a request that may be sent again. */
export interface AccountIdempotency extends Idempotency {
  /** The key, with the caller and the organization that it is for. */
  scope: string
}

const DEFAULT_CATEGORY = "personal"

/** Returns the Organization to create, with the caller as its owner. */
export function toOrganization(
  { name, category = DEFAULT_CATEGORY }: OrganizationCreation,
  { userId, email }: User,
  identity: AccountIdentity,
): Organization {
  const owner = { userId, ...(email !== undefined && { email }), role: "owner" } as const
  const { annotations, ...metadata } = metadataOf(identity)
  return {
    ...{ apiVersion: API_VERSION, kind: ORGANIZATION.kind },
    metadata: { ...metadata, annotations: { ...annotations, [ANNOTATIONS.createdBy]: userId } },
    spec: { displayName: name, category, members: [owner] },
  }
}

/** Returns the Project to create in an organization. */
export function toProject({ name }: ProjectCreation, organization: string, identity: AccountIdentity): Project {
  return {
    ...{ apiVersion: API_VERSION, kind: PROJECT.kind, metadata: metadataOf(identity) },
    spec: { displayName: name, organization },
  }
}

function metadataOf({ id, createdAt, idempotency }: AccountIdentity): ObjectMeta {
  const { annotations } = idempotencyMarks(idempotency)
  const { labels } = idempotencyMarks(idempotency && { key: idempotency.scope })
  return { name: id, labels, annotations: { [ANNOTATIONS.createdAt]: createdAt, ...annotations } }
}

/** Returns the record of an organization for a member with this role. */
export function toOrganizationRecord(organization: StoredOrganization, role: OrganizationRole): OrganizationRecord {
  const { metadata, spec } = organization
  return {
    id: metadata.name,
    displayName: spec.displayName,
    category: spec.category ?? DEFAULT_CATEGORY,
    role,
    ...accountTroubles(organization),
  }
}

/** Returns the members in the order in which they were added. */
export function toMemberRecords({ spec }: StoredOrganization): MemberRecord[] {
  return (spec.members ?? []).map(({ userId, email = null, role }) => ({ userId, email, role }))
}

export function toProjectRecord(project: StoredProject): ProjectRecord {
  const { metadata, spec, status } = project
  const { displayName, organization, caps = null } = spec
  return {
    id: metadata.name,
    displayName,
    organizationId: organization,
    caps,
    spending: status?.spending ?? null,
    ...accountTroubles(project),
  }
}

/** Returns the caps after a change; undefined if none are left. */
export function changedCaps(before: SpendCaps | undefined, change: ProjectUpdate["caps"]): SpendCaps | undefined {
  if (change == null) return before
  return Object.keys(change).length === 0 ? undefined : change
}

/** Reason why a member may not give a user a role. */
export type RoleRefusal = "onlyOwnersGrantOwner" | "onlyOwnersChangeOwners" | "lastOwner"

/**
 * Returns the members after a user was given a role, or the reason of the refusal. Only owners may grant the role
 * owner or change an owner's role, and the last owner stays. A user who was not a member is added.
 */
export function withRole(
  members: NonNullable<Organization["spec"]["members"]>,
  { userId, role, by }: { userId: string; role: OrganizationRole; by: OrganizationRole },
): { members: NonNullable<Organization["spec"]["members"]> } | { refusal: RoleRefusal } {
  const present = members.find((member) => member.userId === userId)
  if (by !== "owner" && role === "owner") return { refusal: "onlyOwnersGrantOwner" }
  if (by !== "owner" && present?.role === "owner") return { refusal: "onlyOwnersChangeOwners" }
  const owners = members.filter((member) => member.role === "owner")
  if (role !== "owner" && owners.length === 1 && owners[0] === present) return { refusal: "lastOwner" }
  if (present === undefined) return { members: [...members, { userId, role }] }
  return { members: members.map((member) => (member === present ? { ...member, role } : member)) }
}
