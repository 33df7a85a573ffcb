import { createHash } from "node:crypto"
import { type CreationTimes, newestFirst } from "../../apis/creation-times.ts"
import { makeId } from "../../apis/ids.ts"
import type { KubeObject, Stored } from "../../apis/meta.ts"
import type { OrganizationRole, StoredOrganization } from "../../apis/organization.ts"
import type { StoredProject } from "../../apis/project.ts"
import { type Precondition, requireVersion } from "../../http/entity-tags.ts"
import { forbidden, invalidRequest, notFound, Problem, unavailable } from "../../http/problem.ts"
import type { Page } from "../../http/query.ts"
import { roleInOrganization } from "../../identity/members.ts"
import type { Person } from "../../identity/oidc.ts"
import type { Memberships } from "../../identity/persons.ts"
import type { CallerClient } from "../../identity/principal.ts"
import { ORGANIZATIONS, PROJECTS } from "../../identity/projects.ts"
import { ifFound, isAlreadyExists, isConflict, isInvalid, isNotFound } from "../../kube/errors.ts"
import type { Resource } from "../../kube/resource.ts"
import type { Store } from "../../kube/store.ts"
import { filled, PROJECTS_OF_ORGANIZATION, withPatience } from "../caches.ts"
import { faultsOfRefusal } from "../collection.ts"
import { type Idempotency, keyReused, replayed, requestHash } from "../idempotency.ts"
import type { MemberRole, OrganizationCreation, OrganizationUpdate, ProjectCreation, ProjectUpdate } from "./schema.ts"
import { type AccountIdentity, organizationOf, projectOf, type RoleRefusal, withRole } from "./translate.ts"

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
/** How many made-up ids may turn out to be taken. */
const ID_ATTEMPTS = 5
/** Of an id that is made from an Idempotency-Key: so many that no two keys ever make the same. */
const KEYED_ID_BYTES = 16
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

  /** A page of a person's organizations, newest first. @throws Problem 503 before the cache was read */
  organizationsOf(person: Person, page: Page): Membership[] {
    filled(this.#options.organizations)
    const found = this.#options.memberships.of(person).toSorted(newestFirst)
    return pageOf(found, page).flatMap((organization) => {
      const role = roleInOrganization(person, organization)
      return role === undefined ? [] : [{ organization, role }]
    })
  }

  /**
   * Makes an organization that the person owns, or finds the one that the same request made.
   * @throws Problem 403 too many, 422 Idempotency-Key reused, 400 what the API server refuses
   */
  async createOrganization(person: Person, wanted: OrganizationCreation, key?: string): Promise<Membership> {
    const organization = await this.#create<StoredOrganization>({
      resource: ORGANIZATIONS,
      store: this.#options.organizations,
      request: requestOf(wanted, person.userId, key),
      objectOf: (identity) => organizationOf(wanted, person, identity) as StoredOrganization,
      requireRoom: () => this.#requireRoomFor(person),
    })
    const role = roleInOrganization(person, organization)
    if (role !== undefined) return { organization, role }
    const detail = "You no longer have access to the organization that this Idempotency-Key created: choose a new key."
    throw new Problem({ type: "idempotency-key-reused", status: 422, detail })
  }

  #requireRoomFor({ userId }: Person): void {
    // What a group of theirs owns was not made by them.
    const self = { userId }
    filled(this.#options.organizations)
    const all = this.#options.memberships.of(self)
    const owned = all.filter((organization) => roleInOrganization(self, organization) === "owner").length
    const limit = ACCOUNT_LIMITS.ownedOrganizations
    if (owned >= limit) throw forbidden(`You own ${owned} organizations; the maximum is ${limit}.`)
  }

  /** @throws Problem 404, 403 below admin, 412 */
  updateOrganization(
    id: string,
    person: Person,
    { displayName, category }: OrganizationUpdate,
    precondition?: Precondition,
  ): Promise<Membership> {
    return this.#changeOrganization(id, person, ({ organization }) => {
      requireVersion("organization", organization, precondition)
      return { ...organization.spec, displayName, ...(typeof category === "string" && { category }) }
    })
  }

  /** The organization that a person belongs to. @throws Problem 404 */
  async find(id: string, person: Person): Promise<Membership> {
    const found = isId(id) ? await this.#options.memberships.find(id, person) : undefined
    if (found === undefined) throw notFound(`The organization ${JSON.stringify(id)} does not exist.`)
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

  /** A page of an organization's projects, newest first. @throws Problem 404, 503 before the cache was read */
  async projectsOf(id: string, person: Person, page: Page): Promise<StoredProject[]> {
    const { organization } = await this.find(id, person)
    return pageOf(this.#projectsOf(organization).toSorted(newestFirst), page)
  }

  /**
   * Makes a project, or finds the one that the same request made; resolves when its namespace is there, or after a while.
   * @throws Problem 404, 403, 422 Idempotency-Key reused, 400 what the API server refuses
   */
  async createProject(id: string, person: Person, wanted: ProjectCreation, key?: string): Promise<StoredProject> {
    const membership = await this.find(id, person)
    requireAdmin(membership)
    const { projects } = this.#options
    const project = await this.#create<StoredProject>({
      resource: PROJECTS,
      store: projects,
      request: requestOf(wanted, `${person.userId} ${id}`, key),
      objectOf: (identity) => projectOf(wanted, id, identity) as StoredProject,
      requireRoom: () => {
        const limit = ACCOUNT_LIMITS.projects
        if (this.#projectsOf(membership.organization).length < limit) return
        throw forbidden(`An organization has at most ${limit} projects.`)
      },
    })
    if (project.spec.organization !== id) throw keyReused(key ?? "")
    const isReady = (): boolean => projects.getByUid(project.metadata.uid)?.status?.namespace !== undefined
    await withPatience(READY_MS, (signal) => projects.waitUntil(isReady, signal))
    return project
  }

  /** @throws Problem 404, 403 below admin, 412 */
  async updateProject(
    id: string,
    person: Person,
    { displayName }: ProjectUpdate,
    precondition?: Precondition,
  ): Promise<StoredProject> {
    const { client, projects } = this.#options
    for (let attempt = 0; attempt < CHANGE_ATTEMPTS; attempt++) {
      const project = isId(id) ? await this.#read(PROJECTS, id) : undefined
      const membership = project && (await this.#options.memberships.find(project.spec.organization, person))
      if (membership === undefined || project === undefined) throw noProject(id)
      requireAdmin(membership)
      requireVersion("project", project, precondition)
      if (project.spec.displayName === displayName) return project
      const changed = await replaced(client, PROJECTS, { ...project, spec: { ...project.spec, displayName } })
      if (changed !== undefined) return this.#echoed(changed, projects)
    }
    throw unavailable("The project is changed by many requests at once: try again.")
  }

  #projectsOf({ metadata }: StoredOrganization): StoredProject[] {
    return filled(this.#options.projects).byIndex(PROJECTS_OF_ORGANIZATION, metadata.name)
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
      const role = organization && roleInOrganization(person, organization)
      if (organization === undefined || role === undefined) {
        throw notFound(`The organization ${JSON.stringify(id)} does not exist.`)
      }
      requireAdmin({ role })
      const spec = change({ organization, role })
      const changed = await replaced(client, ORGANIZATIONS, { ...organization, spec })
      if (changed !== undefined) return { organization: await this.#echoed(changed, organizations), role }
    }
    throw unavailable("The organization is changed by many requests at once: try again.")
  }

  async #read<T extends Stored<KubeObject>>(resource: Resource<T>, name: string): Promise<T | undefined> {
    return ifFound(this.#options.client.get(resource, { name }))
  }

  /** What a request with a key has made comes before everything that only a new one has to fulfil. */
  async #create<T extends Stored<KubeObject>>(creation: Creation<T>): Promise<T> {
    const { resource, store, request, objectOf, requireRoom } = creation
    const { client, creationTimes } = this.#options
    for (let attempt = 0; attempt < ID_ATTEMPTS; attempt++) {
      const { id = makeId(request.name), idempotency } = request
      const earlier = idempotency && (await this.#read(resource, id))
      if (idempotency !== undefined && earlier !== undefined) return replayed(earlier, idempotency)
      requireRoom()
      try {
        const object = objectOf({ id, idempotency, createdAt: creationTimes.next() })
        return await this.#echoed(await client.create(resource, object), store)
      } catch (error) {
        if (isInvalid(error)) throw invalidRequest(faultsOfRefusal(error, { displayName: "name" }))
        // Another request with the key was faster, or somebody else's object has the id that was made up.
        if (!isAlreadyExists(error)) throw error
      }
    }
    throw unavailable("Every generated id is in use: send the request again.")
  }

  async #echoed<T extends Stored<KubeObject>>(object: T, store: Store<T>): Promise<T> {
    await withPatience(ECHO_MS, (signal) => store.waitFor(object.metadata.resourceVersion, signal))
    return object
  }
}

/** An organization or project to be made. */
interface Creation<T extends Stored<KubeObject>> {
  resource: Resource<T>
  store: Store<T>
  request: CreationRequest
  objectOf: (identity: AccountIdentity) => T
  /** @throws Problem 403 when there may be no more of them */
  requireRoom: () => void
}

interface CreationRequest {
  /** What it is to be called. */
  name: string
  /** With an Idempotency-Key the id is a function of who sent it, so that the API server refuses a second one. */
  id?: string
  idempotency?: Idempotency
}

/** @param by who sent the request, and for what */
function requestOf(wanted: { name: string }, by: string, key: string | undefined): CreationRequest {
  const { name } = wanted
  if (key === undefined) return { name }
  const entropy = createHash("sha256")
    .update(JSON.stringify([by, key]))
    .digest()
    .subarray(0, KEYED_ID_BYTES)
  return { name, id: makeId("", entropy), idempotency: { key, requestHash: requestHash(wanted) } }
}

/** What can't be an id must not become a part of the API server's URL. */
function isId(text: string): boolean {
  return /^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$/.test(text) && text.length <= 253
}

function requireAdmin({ role }: Pick<Membership, "role">): void {
  if (role === "member")
    throw forbidden("This request needs the role admin or higher in the organization; yours is member.")
}

function noProject(id: string): Problem {
  return notFound(`The project ${JSON.stringify(id)} does not exist.`)
}

function refusalOf(refusal: RoleRefusal): Problem {
  switch (refusal) {
    case "onlyOwnersGrantOwner":
      return forbidden("Only owners may grant the role owner.")
    case "onlyOwnersChangeOwners":
      return forbidden("Only owners may change an owner's role.")
    case "lastOwner": {
      const detail = "The last owner of an organization cannot be demoted: make another member an owner first."
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
    if (isInvalid(error)) throw invalidRequest(faultsOfRefusal(error), "The change")
    throw error
  }
}

function pageOf<T>(items: readonly T[], { offset, limit }: Page): T[] {
  return items.slice(offset, offset + limit)
}
