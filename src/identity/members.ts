import { type Role, roleAllows } from "../apis/apikey.ts"
import { ORGANIZATION_ROLES, type Organization, type OrganizationRole } from "../apis/organization.ts"
import type { Project } from "../apis/project.ts"

/**
 * A person's id: the OIDC issuer and the subject that it knows the person by. In the form that Kubernetes gives users of
 * that issuer by default, so that kubectl with the same identity is the same person
 * (https://kubernetes.io/docs/reference/access-authn-authz/authentication/#configuring-the-api-server).
 */
export function userIdOf(issuer: string, subject: string): string {
  return `${issuer}#${subject}`
}

/**
 * A group's id, in the same form: two issuers may have groups of one name, and no issuer can have a group of Kubernetes'
 * own, such as `system:masters`. Kubernetes names groups so where it is told `<issuer>#` as their prefix.
 */
export function groupIdOf(issuer: string, name: string): string {
  return `${issuer}#${name}`
}

/** Who somebody is to memberships. */
export interface Identity {
  userId: string
  /** Ids of the groups that the person is in. */
  groups?: readonly string[]
}

const PROJECT_ROLE: Readonly<Record<OrganizationRole, Role>> = { owner: "admin", admin: "admin", member: "developer" }

/** Who has which role in a project: people by userId, groups by their ids. */
export interface ProjectRoles {
  users: ReadonlyMap<string, Role>
  groups: ReadonlyMap<string, Role>
}

/**
 * What each person and each group may do in a project: what the organization gives, or the project where that is more.
 * Without an organization only the project's own members have roles.
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

/** A person's role in a project: the highest one that they or a group of theirs have, as in Kubernetes. */
export function roleInProject({ userId, groups = [] }: Identity, roles: ProjectRoles): Role | undefined {
  const all = [roles.users.get(userId), ...groups.map((group) => roles.groups.get(group))]
  return all
    .filter((role) => role !== undefined)
    .reduce<Role | undefined>((high, role) => (high !== undefined && roleAllows(high, role) ? high : role), undefined)
}

/** A person's role in an organization: the highest one that they or a group of theirs have. */
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
