import type { Clock } from "../apis/clock.ts"
import { findCondition } from "../apis/conditions.ts"
import type { OrganizationRole, StoredOrganization } from "../apis/organization.ts"
import type { StoredProject } from "../apis/project.ts"
import { ProjectCondition } from "../apis/project.ts"
import type { KubeClient } from "../kube/client.ts"
import { ifFound } from "../kube/errors.ts"
import type { IndexFunction, Store } from "../kube/store.ts"
import { ORGANIZATIONS, PROJECTS } from "../resources.ts"
import { groupsWarning } from "./group-claim.ts"
import { LiveReads } from "./live-reads.ts"
import { roleUserName } from "./machine-users.ts"
import { creatorOf, projectRoles, roleInOrganization, roleInProject } from "./members.ts"
import type { User } from "./oidc.ts"
import { NotBoundYet, type Principal } from "./principal.ts"
import { projectScope } from "./projects.ts"

const MEMBER_INDEX = "member"
const CREATOR_INDEX = "creator"

/** Indexes that the cache of Organizations must have. */
export const ORGANIZATION_INDEXES: Record<string, IndexFunction<StoredOrganization>> = {
  [MEMBER_INDEX]: ({ spec: { members = [], groups = [] } }) => [
    ...members.map(({ userId }) => memberEntry("user", userId)),
    ...groups.map(({ group }) => memberEntry("group", group)),
  ],
  [CREATOR_INDEX]: (organization) => {
    const creator = creatorOf(organization)
    return creator === undefined ? [] : [creator]
  },
}

/** Returns an entry of the index. A user and a group of an issuer may have the same id. */
function memberEntry(kind: "user" | "group", id: string): string {
  return `${kind}/${id}`
}

export interface MembershipsOptions {
  client: Pick<KubeClient, "get">
  /** Cache with ORGANIZATION_INDEXES. */
  organizations: Store<StoredOrganization>
  clock: Clock
}

/** Finds users' roles from the organizations that they belong to. */
export class Memberships {
  readonly #options: MembershipsOptions
  readonly #live: LiveReads<StoredOrganization>

  constructor(options: MembershipsOptions) {
    this.#options = options
    this.#live = new LiveReads({ ...options, resource: ORGANIZATIONS })
  }

  /** Returns the organizations of a user, from the cache. */
  of({ userId, groups = [] }: User): StoredOrganization[] {
    const entries = [memberEntry("user", userId), ...groups.map((group) => memberEntry("group", group))]
    const found = entries.flatMap((entry) => this.#options.organizations.byIndex(MEMBER_INDEX, entry))
    return [...new Map(found.map((organization) => [organization.metadata.uid, organization])).values()]
  }

  /** Counts the organizations that a user created, in the cache. Others can't create one in the user's name. */
  countCreatedBy({ userId }: User): number {
    return this.#options.organizations.countByIndex(CREATOR_INDEX, userId)
  }

  /**
   * Returns an organization, at most a second old, and the user's role in it. Returns undefined if there is no such
   * organization. A user who does not belong to it also gets undefined, and so can't learn that it exists.
   * @throws KubeError if the API server can't answer now
   */
  async find(
    id: string,
    user: User,
  ): Promise<{ organization: StoredOrganization; role: OrganizationRole } | undefined> {
    const organization = await this.organization(id)
    const role = organization && roleInOrganization(user, organization)
    return organization === undefined || role === undefined ? undefined : { organization, role }
  }

  /** Returns an organization, at most a second old. @throws KubeError if the API server can't answer now */
  async organization(name: string): Promise<StoredOrganization | undefined> {
    const cached = this.#options.organizations.get({ name }) ?? (await this.#read(name))
    return cached && (await this.#live.newest(cached))
  }

  /** Reads from the API server: another replica may just have created the organization. */
  async #read(name: string): Promise<StoredOrganization | undefined> {
    return ifFound(this.#options.client.get(ORGANIZATIONS, { name }))
  }
}

/** Finds the principals of users in projects. */
export class ProjectMembers {
  readonly #memberships: Memberships
  readonly #live: LiveReads<StoredProject>

  constructor(memberships: Memberships, options: { client: Pick<KubeClient, "get">; clock: Clock }) {
    this.#memberships = memberships
    this.#live = new LiveReads({ ...options, resource: PROJECTS })
  }

  /**
   * Returns a user's principal in a project; undefined if the user has no role there. Roles are at most a second old.
   * The API server sees the ServiceAccount of the role.
   * @throws KubeError if the API server can't answer now; NotBoundYet while the project has no namespace
   */
  async principal(user: User, cached: StoredProject): Promise<Principal | undefined> {
    const project = await this.#live.newest(cached)
    if (project === undefined) return undefined
    const organization = await this.#memberships.organization(project.spec.organization)
    const role = roleInProject(user, projectRoles(project, organization))
    if (role === undefined) return undefined
    const scope = projectScope(project)
    if (scope === undefined) {
      const { status, message } = findCondition(project.status?.conditions, ProjectCondition.Stalled) ?? {}
      const stalled = status === "True" ? message : undefined
      throw new NotBoundYet(`the project ${project.metadata.name} has no namespace yet`, { stalled })
    }
    return {
      kind: "person",
      id: `person/${user.userId}`,
      publicId: user.userId,
      name: user.email,
      expiresAt: user.expiresAt,
      role,
      groupCount: user.groups?.length ?? 0,
      warning: groupsWarning(user),
      project: scope,
      machineUser: roleUserName(project.metadata.uid, role),
      // A project gets its namespace after the machine users of its roles have their rights there.
      isBound: true,
    }
  }
}
