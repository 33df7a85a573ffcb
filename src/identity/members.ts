import { type Role, roleAllows } from "../apis/apikey.ts"
import type { Organization, OrganizationRole } from "../apis/organization.ts"
import type { Project } from "../apis/project.ts"

/**
 * A person's id: the OIDC issuer and the subject that it knows the person by. In the form that Kubernetes gives users of
 * that issuer by default, so that kubectl with the same identity is the same person
 * (https://kubernetes.io/docs/reference/access-authn-authz/authentication/#configuring-the-api-server).
 */
export function userIdOf(issuer: string, subject: string): string {
  return `${issuer}#${subject}`
}

const PROJECT_ROLE: Readonly<Record<OrganizationRole, Role>> = { owner: "admin", admin: "admin", member: "developer" }

/**
 * What each person may do in a project, by userId: what the organization gives, or the project where that is more.
 * Without an organization only the project's own members have roles.
 */
export function projectRoles(
  project: Pick<Project, "spec">,
  organization: Pick<Organization, "spec"> | undefined,
): Map<string, Role> {
  const roles = new Map<string, Role>()
  for (const { userId, role } of organization?.spec.members ?? []) roles.set(userId, PROJECT_ROLE[role])
  for (const { userId, role } of project.spec.members ?? []) {
    const present = roles.get(userId)
    if (present === undefined || roleAllows(role, present)) roles.set(userId, role)
  }
  return roles
}
