import type { Role } from "../apis/apikey.ts"
import type { Clock } from "../apis/clock.ts"
import type { OrganizationRole, StoredOrganization } from "../apis/organization.ts"
import type { StoredProject } from "../apis/project.ts"
import type { KubeClient } from "../kube/client.ts"
import { isNotFound } from "../kube/errors.ts"
import type { IndexFunction, Store } from "../kube/store.ts"
import { LiveReads } from "./live-reads.ts"
import { projectRoles } from "./members.ts"
import type { Person } from "./oidc.ts"
import { ORGANIZATIONS } from "./projects.ts"

const MEMBER_INDEX = "member"

/** Indexes that the cache of Organizations must have. */
export const ORGANIZATION_INDEXES: Record<string, IndexFunction<StoredOrganization>> = {
  [MEMBER_INDEX]: ({ spec }) => (spec.members ?? []).map(({ userId }) => userId),
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
  of({ userId }: Person): StoredOrganization[] {
    return this.#options.organizations.byIndex(MEMBER_INDEX, userId)
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
    const organization = await this.#organization(id)
    const role = organization?.spec.members?.find(({ userId }) => userId === person.userId)?.role
    return organization === undefined || role === undefined ? undefined : { organization, role }
  }

  /** What a person may do in a project; undefined when nothing. @throws KubeError when that can't be told now */
  async roleIn(project: StoredProject, person: Person): Promise<Role | undefined> {
    return projectRoles(project, await this.#organization(project.spec.organization)).get(person.userId)
  }

  async #organization(name: string): Promise<StoredOrganization | undefined> {
    const cached = this.#options.organizations.get({ name }) ?? (await this.#read(name))
    return cached && (await this.#live.newest(cached))
  }

  /** Another replica may just have made it. */
  async #read(name: string): Promise<StoredOrganization | undefined> {
    try {
      return await this.#options.client.get(ORGANIZATIONS, { name })
    } catch (error) {
      if (isNotFound(error)) return undefined
      throw error
    }
  }
}
