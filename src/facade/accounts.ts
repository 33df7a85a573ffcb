import { createHash } from "node:crypto"
import { makeId } from "../apis/ids.ts"
import { ANNOTATIONS, type KubeObject, type Stored } from "../apis/meta.ts"
import type { OrganizationRole, StoredOrganization } from "../apis/organization.ts"
import type { StoredProject } from "../apis/project.ts"
import type { Person } from "../identity/oidc.ts"
import type { Memberships } from "../identity/persons.ts"
import type { CallerClient } from "../identity/principal.ts"
import { ORGANIZATIONS, PROJECTS } from "../identity/projects.ts"
import { ifFound, isAlreadyExists, isConflict, isNotFound } from "../kube/errors.ts"
import type { Resource } from "../kube/resource.ts"
import type { Store } from "../kube/store.ts"
import { PROJECTS_OF_ORGANIZATION } from "./caches.ts"
import { type CreationTimes, newestFirst } from "./created-at.ts"
import { keyReused } from "./idempotency.ts"
import { withPatience } from "./patience.ts"
import { forbidden, notFound, Problem, unavailable } from "./problem.ts"
import type { Page } from "./query.ts"
import type {
  MemberRole,
  OrganizationCreation,
  OrganizationUpdate,
  ProjectCreation,
  ProjectUpdate,
} from "./schemas/account.ts"
import { type AccountIdentity, organizationOf, projectOf, type RoleRefusal, withRole } from "./translate/account.ts"
import { requestHash } from "./translate/job.ts"

export interface AccountsOptions {
  /** As the ServiceAccount that may write Organizations and Projects. */
  client: CallerClient
  memberships: Memberships
  organizations: Store<StoredOrganization>
  /** With the index PROJECTS_OF_ORGANIZATION. */
  projects: Store<StoredProject>
  creationTimes: CreationTimes
}

/** How many organizations a person may own, and how many projects an organization may have. */
export const ACCOUNT_LIMITS = { ownedOrganizations: 50, projects: 200, members: 1000 } as const

/** How often a change is tried on an object that others change at the same time. */
const CHANGE_ATTEMPTS = 8
/** How long an answer waits until the cache shows what was written, and until a new project is ready. */
const ECHO_MS = 1000
const READY_MS = 10_000

/** An organization with the caller's role in it. */
export interface Membership {
  organization: StoredOrganization
  role: OrganizationRole
}

/** The organizations, members and projects of signed-in people. What isn't theirs is not there for them. */
export class Accounts {
  readonly #options: AccountsOptions

  constructor(options: AccountsOptions) {
    this.#options = options
  }

  /** A page of a person's organizations, newest first. */
  organizationsOf(person: Person, page: Page): Membership[] {
    const found = this.#options.memberships.of(person).toSorted(newestFirst)
    return pageOf(found, page).flatMap((organization) => {
      const role = roleIn(organization, person)
      return role === undefined ? [] : [{ organization, role }]
    })
  }

  /** Makes an organization that the person owns. @throws Problem 403 too many, 422 Idempotency-Key reused */
  async createOrganization(person: Person, wanted: OrganizationCreation, key?: string): Promise<StoredOrganization> {
    const { memberships, creationTimes } = this.#options
    const owned = memberships.of(person).filter((organization) => roleIn(organization, person) === "owner")
    const limit = ACCOUNT_LIMITS.ownedOrganizations
    if (owned.length >= limit) throw forbidden(`You own ${owned.length} organizations; ${limit} are the most.`)
    const identity = identityOf(wanted, { by: person.userId, key, createdAt: creationTimes.next() })
    const object = organizationOf(wanted, person, identity)
    return this.#create(ORGANIZATIONS, object as StoredOrganization, this.#options.organizations)
  }

  /** @throws Problem 404, 403 below admin */
  updateOrganization(id: string, person: Person, { displayName, category }: OrganizationUpdate): Promise<Membership> {
    return this.#changeOrganization(id, person, ({ organization }) => ({
      ...organization.spec,
      displayName,
      ...(typeof category === "string" && { category }),
    }))
  }

  /** The organization that a person belongs to. @throws Problem 404 */
  async find(id: string, person: Person): Promise<Membership> {
    const found = isId(id) ? await this.#options.memberships.find(id, person) : undefined
    if (found === undefined) throw notFound(`There is no organization ${JSON.stringify(id)}.`)
    return found
  }

  /** Gives a person a role in an organization. @throws Problem 404, 403, 409 the last owner */
  async setRole(id: string, person: Person, userId: string, { role }: MemberRole): Promise<void> {
    await this.#changeOrganization(id, person, ({ organization, role: by }) => {
      const outcome = withRole(organization.spec.members ?? [], { userId, role, by })
      if ("refusal" in outcome) throw refusalOf(outcome.refusal)
      const limit = ACCOUNT_LIMITS.members
      if (outcome.members.length > limit) throw forbidden(`An organization has at most ${limit} members.`)
      return { ...organization.spec, members: outcome.members }
    })
  }

  /** A page of an organization's projects, newest first. @throws Problem 404 */
  async projectsOf(id: string, person: Person, page: Page): Promise<StoredProject[]> {
    const { organization } = await this.find(id, person)
    return pageOf(this.#projectsOf(organization).toSorted(newestFirst), page)
  }

  /** Makes a project; resolves when its namespace is there, or after a while. @throws Problem 404, 403, 422 */
  async createProject(id: string, person: Person, wanted: ProjectCreation, key?: string): Promise<StoredProject> {
    const membership = await this.find(id, person)
    requireAdmin(membership)
    const { projects, creationTimes } = this.#options
    const limit = ACCOUNT_LIMITS.projects
    if (this.#projectsOf(membership.organization).length >= limit) {
      throw forbidden(`An organization has at most ${limit} projects.`)
    }
    const identity = identityOf(wanted, { by: `${person.userId} ${id}`, key, createdAt: creationTimes.next() })
    const project = await this.#create(PROJECTS, projectOf(wanted, id, identity) as StoredProject, projects)
    const isReady = (): boolean => projects.getByUid(project.metadata.uid)?.status?.namespace !== undefined
    await withPatience(READY_MS, (signal) => projects.waitUntil(isReady, signal))
    return project
  }

  /** @throws Problem 404, 403 below admin */
  async updateProject(id: string, person: Person, { displayName }: ProjectUpdate): Promise<StoredProject> {
    const { client, projects } = this.#options
    for (let attempt = 0; attempt < CHANGE_ATTEMPTS; attempt++) {
      const project = isId(id) ? await this.#read(PROJECTS, id) : undefined
      const membership = project && (await this.#options.memberships.find(project.spec.organization, person))
      if (membership === undefined || project === undefined) throw noProject(id)
      requireAdmin(membership)
      if (project.spec.displayName === displayName) return project
      const changed = await replaced(client, PROJECTS, { ...project, spec: { ...project.spec, displayName } })
      if (changed !== undefined) return this.#echoed(changed, projects)
    }
    throw unavailable("The project changes too fast to be changed right now.")
  }

  #projectsOf({ metadata }: StoredOrganization): StoredProject[] {
    return this.#options.projects.byIndex(PROJECTS_OF_ORGANIZATION, metadata.name)
  }

  /** Rights are looked at on the very version that is replaced: a demotion at the same moment is not overlooked. */
  async #changeOrganization(
    id: string,
    person: Person,
    change: (present: Membership) => StoredOrganization["spec"],
  ): Promise<Membership> {
    const { client, organizations } = this.#options
    for (let attempt = 0; attempt < CHANGE_ATTEMPTS; attempt++) {
      const organization = isId(id) ? await this.#read(ORGANIZATIONS, id) : undefined
      const role = organization && roleIn(organization, person)
      if (organization === undefined || role === undefined) {
        throw notFound(`There is no organization ${JSON.stringify(id)}.`)
      }
      requireAdmin({ role })
      const spec = change({ organization, role })
      const changed = await replaced(client, ORGANIZATIONS, { ...organization, spec })
      if (changed !== undefined) return { organization: await this.#echoed(changed, organizations), role }
    }
    throw unavailable("The organization changes too fast to be changed right now.")
  }

  async #read<T extends Stored<KubeObject>>(resource: Resource<T>, name: string): Promise<T | undefined> {
    return ifFound(this.#options.client.get(resource, { name }))
  }

  async #create<T extends Stored<KubeObject>>(resource: Resource<T>, object: T, store: Store<T>): Promise<T> {
    try {
      return await this.#echoed(await this.#options.client.create(resource, object), store)
    } catch (error) {
      if (!isAlreadyExists(error)) throw error
    }
    // Only an Idempotency-Key makes the same id twice.
    const earlier = await this.#read(resource, object.metadata.name)
    const hashOf = ({ metadata }: KubeObject): string | undefined => metadata.annotations?.[ANNOTATIONS.requestHash]
    if (earlier !== undefined && hashOf(earlier) === hashOf(object)) return earlier
    throw keyReused(object.metadata.annotations?.[ANNOTATIONS.idempotencyKey] ?? "")
  }

  async #echoed<T extends Stored<KubeObject>>(object: T, store: Store<T>): Promise<T> {
    await withPatience(ECHO_MS, (signal) => store.waitFor(object.metadata.resourceVersion, signal))
    return object
  }
}

/** With an Idempotency-Key the id is a function of who sent it, so that the API server refuses the second one. */
function identityOf(
  wanted: { name: string },
  { by, key, createdAt }: { by: string; key: string | undefined; createdAt: string },
): AccountIdentity {
  if (key === undefined) return { id: makeId(wanted.name), createdAt }
  const entropy = createHash("sha256")
    .update(JSON.stringify([by, key]))
    .digest()
  return { id: makeId("", entropy), createdAt, idempotency: { key, requestHash: requestHash(wanted) } }
}

/** What can't be an id must not become a part of the API server's URL. */
function isId(text: string): boolean {
  return /^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$/.test(text) && text.length <= 253
}

function roleIn({ spec }: StoredOrganization, person: Person): OrganizationRole | undefined {
  return spec.members?.find(({ userId }) => userId === person.userId)?.role
}

function requireAdmin({ role }: Pick<Membership, "role">): void {
  if (role === "member") throw forbidden("This needs the role admin or higher in the organization; yours is member.")
}

function noProject(id: string): Problem {
  return notFound(`There is no project ${JSON.stringify(id)}.`)
}

function refusalOf(refusal: RoleRefusal): Problem {
  switch (refusal) {
    case "onlyOwnersGrantOwner":
      return forbidden("Only owners may grant the role owner.")
    case "onlyOwnersChangeOwners":
      return forbidden("Only owners may change an owner's role.")
    case "lastOwner": {
      const detail = "The last owner of an organization can't be demoted: make somebody else an owner first."
      return new Problem({ type: "last-owner", status: 409, detail })
    }
  }
}

/** The replaced object; undefined when it has changed since it was read, or is gone. */
async function replaced<T extends Stored<KubeObject>>(
  client: CallerClient,
  resource: Resource<T>,
  object: T,
): Promise<T | undefined> {
  try {
    return await client.replace(resource, object)
  } catch (error) {
    if (isConflict(error) || isNotFound(error)) return undefined
    throw error
  }
}

function pageOf<T>(items: readonly T[], { offset, limit }: Page): T[] {
  return items.slice(offset, offset + limit)
}
