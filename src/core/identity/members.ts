import { type Role, roleAllows } from "../apis/apikey.ts"
import { ANNOTATIONS } from "../apis/meta.ts"
import { ORGANIZATION_ROLES, type Organization, type OrganizationRole } from "../apis/organization.ts"
import type { Project } from "../apis/project.ts"

/**
 * Returns a user's id, built from the OIDC issuer and its subject. The form is Kubernetes' default for users of that
 * issuer, so kubectl with the same identity is the same user
 * (https://kubernetes.io/docs/reference/access-authn-authz/authentication/#configuring-the-api-server).
 */
export function userIdOf(issuer: string, subject: string): string {
  return `${issuer}#${subject}`
}

/**
 * Returns a group's id, in the same form. Two issuers may have groups with one name. No issuer can have one of
 * Kubernetes' own groups, such as `system:masters`. Kubernetes uses these ids if `<issuer>#` is its prefix for groups.
 */
export function groupIdOf(issuer: string, name: string): string {
  return `${issuer}#${name}`
}

/** User and groups, as memberships name them. */
export interface Identity {
  userId: string
  /** Ids of the user's groups. */
  groups?: readonly string[]
}

const PROJECT_ROLE: Readonly<Record<OrganizationRole, Role>> = { owner: "admin", admin: "admin", member: "developer" }

/** Roles in a project: users by userId, groups by their ids. */
export interface ProjectRoles {
  users: ReadonlyMap<string, Role>
  groups: ReadonlyMap<string, Role>
}

/**
 * Returns the role of each user and each group in a project. It is the organization's role, or the project's if that is
 * higher. Without an organization only the project's own members have roles.
 */
export function projectRoles(
  { spec: own }: Pick<Project, "spec">,
  organization: Pick<Organization, "spec"> | undefined,
): ProjectRoles {
  const given = organization?.spec
  return {
    users: higherRoles(
      given?.members?.map(({ userId, role }) => [userId, PROJECT_ROLE[role]]),
      own.members?.map(({ userId, role }) => [userId, role]),
    ),
    groups: higherRoles(
      given?.groups?.map(({ group, role }) => [group, PROJECT_ROLE[role]]),
      own.groups?.map(({ group, role }) => [group, role]),
    ),
  }
}

type Roles = readonly (readonly [who: string, role: Role])[]

function higherRoles(given: Roles = [], own: Roles = []): Map<string, Role> {
  const roles = new Map(given)
  for (const [who, role] of own) {
    const present = roles.get(who)
    if (present === undefined || roleAllows(role, present)) roles.set(who, role)
  }
  return roles
}

/** Returns a user's role in a project: the highest of the user's own and their groups', as in Kubernetes. */
export function roleInProject({ userId, groups = [] }: Identity, roles: ProjectRoles): Role | undefined {
  const all = [roles.users.get(userId), ...groups.map((group) => roles.groups.get(group))]
  return all
    .filter((role) => role !== undefined)
    .reduce<Role | undefined>((high, role) => (high !== undefined && roleAllows(high, role) ? high : role), undefined)
}

/**
 * Returns the id of the user who created an organization. One that kubectl created names no user: it counts for its
 * first member, while that member owns it.
 */
export function creatorOf({
  metadata,
  spec: { members = [] },
}: Pick<Organization, "metadata" | "spec">): string | undefined {
  const [first] = members
  return metadata.annotations?.[ANNOTATIONS.createdBy] ?? (first?.role === "owner" ? first.userId : undefined)
}

/** Returns a user's role in an organization: the highest of the user's own and their groups'. */
export function roleInOrganization(
  { userId, groups = [] }: Identity,
  { spec: { members = [], groups: bound = [] } }: Pick<Organization, "spec">,
): OrganizationRole | undefined {
  const roles = new Set([
    ...members.filter((member) => member.userId === userId).map(({ role }) => role),
    ...bound.filter(({ group }) => groups.includes(group)).map(({ role }) => role),
  ])
  return ORGANIZATION_ROLES.find((role) => roles.has(role))
}
