import type { Clock } from "../apis/clock.ts"
import type { OrganizationRole, StoredOrganization } from "../apis/organization.ts"
import type { StoredProject } from "../apis/project.ts"
import type { KubeClient } from "../kube/client.ts"
import { ifFound } from "../kube/errors.ts"
import type { IndexFunction, Store } from "../kube/store.ts"
import { LiveReads } from "./live-reads.ts"
import { roleUserName } from "./machine-users.ts"
import { projectRoles, roleInOrganization, roleInProject } from "./members.ts"
import type { Person } from "./oidc.ts"
import { NotBoundYet, type Principal } from "./principal.ts"
import { ORGANIZATIONS, PROJECTS, scopeOf } from "./projects.ts"

const MEMBER_INDEX = "member"

/** Indexes that the cache of Organizations must have. */
export const ORGANIZATION_INDEXES: Record<string, IndexFunction<StoredOrganization>> = {
  [MEMBER_INDEX]: ({ spec: { members = [], groups = [] } }) => [
    ...members.map(({ userId }) => memberEntry("user", userId)),
    ...groups.map(({ group }) => memberEntry("group", group)),
  ],
}

/** A person and a group of an issuer may have the same id. */
function memberEntry(kind: "user" | "group", id: string): string {
  return `${kind}/${id}`
}

export interface MembershipsOptions {
  client: Pick<KubeClient, "get">
  /** With ORGANIZATION_INDEXES. */
  organizations: Store<StoredOrganization>
  clock: Clock
}

/** Tells what people may do, from the organizations that they belong to. */
export class Memberships {
  readonly #options: MembershipsOptions
  readonly #live: LiveReads<StoredOrganization>

  constructor(options: MembershipsOptions) {
    this.#options = options
    this.#live = new LiveReads({ ...options, resource: ORGANIZATIONS })
  }

  /** The organizations of a person, as far as the cache knows. */
  of({ userId, groups = [] }: Person): StoredOrganization[] {
    const entries = [memberEntry("user", userId), ...groups.map((group) => memberEntry("group", group))]
    const found = entries.flatMap((entry) => this.#options.organizations.byIndex(MEMBER_INDEX, entry))
    return [...new Map(found.map((organization) => [organization.metadata.uid, organization])).values()]
  }

  /**
   * An organization as it is now or was within the last second, and the person's role in it. Undefined when there is none
   * or the person doesn't belong to it: nobody learns which.
   * @throws KubeError when that can't be told now
   */
  async find(
    id: string,
    person: Person,
  ): Promise<{ organization: StoredOrganization; role: OrganizationRole } | undefined> {
    const organization = await this.organization(id)
    const role = organization && roleInOrganization(person, organization)
    return organization === undefined || role === undefined ? undefined : { organization, role }
  }

  /** An organization as it is now or was within the last second. @throws KubeError when that can't be told now */
  async organization(name: string): Promise<StoredOrganization | undefined> {
    const cached = this.#options.organizations.get({ name }) ?? (await this.#read(name))
    return cached && (await this.#live.newest(cached))
  }

  /** Another replica may just have made it. */
  async #read(name: string): Promise<StoredOrganization | undefined> {
    return ifFound(this.#options.client.get(ORGANIZATIONS, { name }))
  }
}

/** Tells as whom people act in projects. */
export class PeopleInProjects {
  readonly #memberships: Memberships
  readonly #live: LiveReads<StoredProject>

  constructor(memberships: Memberships, options: { client: Pick<KubeClient, "get">; clock: Clock }) {
    this.#memberships = memberships
    this.#live = new LiveReads({ ...options, resource: PROJECTS })
  }

  /**
   * The principal that a person is in a project; undefined when the person has no role there, now or within the last
   * second. The API server sees the ServiceAccount of the role.
   * @throws KubeError when that can't be told now, NotBoundYet while the project has no namespace
   */
  async principal(person: Person, cached: StoredProject): Promise<Principal | undefined> {
    const project = await this.#live.newest(cached)
    if (project === undefined) return undefined
    const organization = await this.#memberships.organization(project.spec.organization)
    const role = roleInProject(person, projectRoles(project, organization))
    if (role === undefined) return undefined
    const scope = scopeOf(project)
    if (scope === undefined) throw new NotBoundYet(`the project ${project.metadata.name} has no namespace yet`)
    return {
      kind: "person",
      id: `person/${person.userId}`,
      role,
      project: scope,
      machineUser: roleUserName(project.metadata.uid, role),
      // A project gets its namespace after its roles' users have their rights there.
      isBound: true,
    }
  }
}
