import { createHash } from "node:crypto"
import { isDeepStrictEqual } from "node:util"
import { type CreationTimes, newestFirst } from "../../../core/apis/creation-times.ts"
import { quote } from "../../../core/apis/field-error.ts"
import { makeId } from "../../../core/apis/ids.ts"
import type { KubeObject, Stored } from "../../../core/apis/meta.ts"
import type { OrganizationRole, StoredOrganization } from "../../../core/apis/organization.ts"
import type { StoredProject } from "../../../core/apis/project.ts"
import { groupsWarning } from "../../../core/identity/group-claim.ts"
import { roleInOrganization } from "../../../core/identity/members.ts"
import type { Memberships } from "../../../core/identity/memberships.ts"
import type { User } from "../../../core/identity/oidc.ts"
import type { CallerClient } from "../../../core/identity/principal.ts"
import type { KubeClient } from "../../../core/kube/client.ts"
import { ifFound, isAlreadyExists, isConflict, isInvalid, isNotFound } from "../../../core/kube/errors.ts"
import type { Resource } from "../../../core/kube/resource.ts"
import type { Store } from "../../../core/kube/store.ts"
import { ORGANIZATIONS, PROJECTS } from "../../../core/resources.ts"
import { isBeingDeleted, PROJECTS_OF_ORGANIZATION, requireSynced, waitWithTimeout } from "../../caches.ts"
import { Changes } from "../../changes.ts"
import { errorsOfRefusal } from "../../collection.ts"
import { type Precondition, requireVersion } from "../../http/entity-tags.ts"
import { beingDeleted, forbidden, invalidRequest, notFound, Problem, unavailable } from "../../http/problem.ts"
import type { Page } from "../../http/query.ts"
import { type KeyedMutex, keyReused, replay, requestHash, requireHeld } from "../../idempotency.ts"
import { idempotencySelector } from "../../idempotency-marks.ts"
import { requireRepetition } from "../../repetition.ts"
import type { MemberRole, OrganizationCreation, OrganizationUpdate, ProjectCreation, ProjectUpdate } from "./schema.ts"
import {
  type AccountIdempotency,
  type AccountIdentity,
  changedCaps,
  type RoleRefusal,
  toOrganization,
  toProject,
  withRole,
} from "./translate.ts"

export interface AccountsOptions {
  /** Client of the ServiceAccount that may write Organizations and Projects. */
  client: CallerClient
  /** Client with the façade's own rights. */
  reader: Pick<KubeClient, "list">
  /** Mutex of the creations with an Idempotency-Key, across replicas. */
  creations: KeyedMutex
  memberships: Memberships
  organizations: Store<StoredOrganization>
  /** With the index PROJECTS_OF_ORGANIZATION. */
  projects: Store<StoredProject>
  creationTimes: CreationTimes
}

/** Largest number of organizations that a user creates, and of projects and members of an organization. */
export const ACCOUNT_LIMITS = { createdOrganizations: 50, projects: 200, members: 1000 } as const

/** Attempts to find a generated id that is not in use. */
const ID_ATTEMPTS = 5
/** Entropy of an id derived from an Idempotency-Key, as of a random one. */
const KEYED_ID_BYTES = 5
/** Longest time that a response waits for the cache to show the written object. */
const CACHE_WAIT_MS = 3000
/** Longest time that a response waits for the namespace of a new project. */
const READY_MS = 10_000

/** Organization with the caller's role in it. */
export interface Membership {
  organization: StoredOrganization
  role: OrganizationRole
}

/** Organizations, members and projects of signed-in users. Those of other users are a 404. */
export class Accounts {
  readonly #options: AccountsOptions
  readonly #changes = new Changes()

  constructor(options: AccountsOptions) {
    this.#options = options
  }

  /** Returns a page of a user's organizations, newest first. @throws Problem 503 before the cache is filled */
  organizationsOf(user: User, page: Page): Membership[] {
    requireSynced(this.#options.organizations)
    const found = this.#options.memberships.of(user).toSorted(newestFirst)
    return pageOf(found, page).flatMap((organization) => {
      const role = roleInOrganization(user, organization)
      return role === undefined ? [] : [{ organization, role }]
    })
  }

  /**
   * Creates an organization that the user owns, or returns the one that the same request created before.
   * @throws Problem 403 too many, 409 being deleted, 422 Idempotency-Key reused, 400 rejected by the API server
   */
  async createOrganization(user: User, wanted: OrganizationCreation, key?: string): Promise<Membership> {
    const organization = await this.#create<StoredOrganization>({
      resource: ORGANIZATIONS,
      store: this.#options.organizations,
      request: requestOf(wanted, user.userId, key),
      objectOf: (identity) => toOrganization(wanted, user, identity) as StoredOrganization,
      requireRoom: () => this.#requireRoomFor(user),
    })
    const role = roleInOrganization(user, organization)
    if (role !== undefined) return { organization, role }
    const detail = "You no longer have access to the organization that this Idempotency-Key created: choose a new key."
    throw new Problem({ type: "idempotency-key-reused", status: 422, detail })
  }

  /** Counts what the user created. Others can make the user an owner, and so organizations that the user owns don't count. */
  #requireRoomFor(user: User): void {
    requireSynced(this.#options.organizations)
    const created = this.#options.memberships.countCreatedBy(user)
    const limit = ACCOUNT_LIMITS.createdOrganizations
    if (created < limit) return
    throw forbidden(
      `You created ${created} organizations; the maximum is ${limit}. Ask the cluster's administrator to delete some.`,
    )
  }

  /** @throws Problem 404, 403 below admin, 412 */
  updateOrganization(
    id: string,
    user: User,
    update: OrganizationUpdate,
    precondition?: Precondition,
  ): Promise<Membership> {
    const { displayName, category } = update
    return this.#changeOrganization(id, user, ({ organization, role }) => {
      requireVersion("organization", organization, precondition)
      requireRepetition("organization", update, { id, role })
      return { ...organization.spec, displayName, ...(typeof category === "string" && { category }) }
    })
  }

  /** Returns the organization, if the user belongs to it. @throws Problem 404 */
  async find(id: string, user: User): Promise<Membership> {
    const found = isId(id) ? await this.#options.memberships.find(id, user) : undefined
    if (found === undefined) throw noOrganization(id, user)
    return found
  }

  /** Gives a user a role in an organization. @throws Problem 404, 403, 409 the last owner */
  async setRole(id: string, user: User, userId: string, { role }: MemberRole): Promise<void> {
    await this.#changeOrganization(id, user, ({ organization, role: by }) => {
      const outcome = withRole(organization.spec.members ?? [], { userId, role, by })
      if ("refusal" in outcome) throw refusalOf(outcome.refusal)
      const limit = ACCOUNT_LIMITS.members
      if (outcome.members.length > limit) throw forbidden(`An organization has at most ${limit} members.`)
      return { ...organization.spec, members: outcome.members }
    })
  }

  /** Returns a page of an organization's projects, newest first. @throws Problem 404, 503 before the cache is filled */
  async projectsOf(id: string, user: User, page: Page): Promise<StoredProject[]> {
    const { organization } = await this.find(id, user)
    return pageOf(this.#projectsOf(organization).toSorted(newestFirst), page)
  }

  /**
   * Creates a project, or returns the one that the same request created before. Waits until its namespace exists, at
   * most READY_MS. @throws Problem 404, 403, 409 being deleted, 422 Idempotency-Key reused, 400 rejected by the API server
   */
  async createProject(id: string, user: User, wanted: ProjectCreation, key?: string): Promise<StoredProject> {
    const membership = await this.find(id, user)
    requireAdmin(membership)
    const { projects } = this.#options
    const project = await this.#create<StoredProject>({
      resource: PROJECTS,
      store: projects,
      request: requestOf(wanted, `${user.userId} ${id}`, key),
      objectOf: (identity) => toProject(wanted, id, identity) as StoredProject,
      requireRoom: () => {
        if (membership.organization.metadata.deletionTimestamp !== undefined)
          throw beingDeleted(`The organization ${id} is being deleted. New projects are rejected.`)
        const limit = ACCOUNT_LIMITS.projects
        if (this.#projectsOf(membership.organization).length < limit) return
        throw forbidden(`An organization has at most ${limit} projects.`)
      },
    })
    if (project.spec.organization !== id) throw keyReused(key ?? "")
    const isReady = (): boolean => projects.getByUid(project.metadata.uid)?.status?.namespace !== undefined
    await waitWithTimeout(READY_MS, (signal) => projects.waitUntil(isReady, signal))
    return project
  }

  /** @throws Problem 404, 403 below admin, 412 */
  async updateProject(
    id: string,
    user: User,
    update: ProjectUpdate,
    precondition?: Precondition,
  ): Promise<StoredProject> {
    const { displayName } = update
    const { client, projects, memberships } = this.#options
    const updated = await this.#changes.run({ noun: "project", key: `projects/${id}` }, async () => {
      const project = isId(id) ? await this.#read(PROJECTS, id) : undefined
      const membership = project && (await memberships.find(project.spec.organization, user))
      if (membership === undefined || project === undefined) throw noProject(id, user)
      requireAdmin(membership)
      requireVersion("project", project, precondition)
      requireRepetition("project", update, { id, organizationId: project.spec.organization })
      const { caps: before, ...others } = project.spec
      const caps = changedCaps(before, update.caps)
      if (others.displayName === displayName && isDeepStrictEqual(caps, before)) return project
      return replaceAccount(client, PROJECTS, { ...project, spec: { ...others, displayName, ...(caps && { caps }) } })
    })
    return this.#waitForCache(updated, projects)
  }

  #projectsOf({ metadata }: StoredOrganization): StoredProject[] {
    return requireSynced(this.#options.projects).byIndex(PROJECTS_OF_ORGANIZATION, metadata.name)
  }

  /** Checks the user's role on the same version that it replaces, so that no concurrent demotion is missed. */
  async #changeOrganization(
    id: string,
    user: User,
    change: (present: Membership) => StoredOrganization["spec"],
  ): Promise<Membership> {
    const { client, organizations } = this.#options
    const changed = await this.#changes.run({ noun: "organization", key: `organizations/${id}` }, async () => {
      const organization = isId(id) ? await this.#read(ORGANIZATIONS, id) : undefined
      const role = organization && roleInOrganization(user, organization)
      if (organization === undefined || role === undefined) throw noOrganization(id, user)
      requireAdmin({ role })
      const spec = change({ organization, role })
      const written = await replaceAccount(client, ORGANIZATIONS, { ...organization, spec })
      return written && { organization: written, role }
    })
    await this.#waitForCache(changed.organization, organizations)
    return changed
  }

  async #read<T extends Stored<KubeObject>>(resource: Resource<T>, name: string): Promise<T | undefined> {
    return ifFound(this.#options.client.get(resource, { name }))
  }

  /**
   * Creates an object, once per Idempotency-Key. An id has the object's name, so the API server doesn't reject a second
   * name under one key: requests with one key take turns.
   */
  #create<T extends Stored<KubeObject>>(creation: Creation<T>): Promise<T> {
    const { resource, request } = creation
    const { idempotency } = request
    if (idempotency === undefined) return this.#createNew(creation)
    const known = (): Promise<T | undefined> => this.#earlier(resource, idempotency)
    const make = async (isHeld: () => boolean): Promise<T> => {
      const earlier = await known()
      if (earlier !== undefined) return earlier
      requireHeld(isHeld)
      return this.#createNew(creation)
    }
    return this.#options.creations.runExclusive(`${resource.plural}/${idempotency.scope}`, make, known)
  }

  /** Returns the object that the same request created before. @throws Problem 422 if another request did */
  async #earlier<T extends Stored<KubeObject>>(
    resource: Resource<T>,
    idempotency: AccountIdempotency,
  ): Promise<T | undefined> {
    const { items } = await this.#options.reader.list(resource, {
      labelSelector: idempotencySelector(idempotency.scope),
    })
    const [earlier] = items.toSorted((a, b) => -newestFirst(a, b))
    return earlier && acceptEarlier(earlier, idempotency)
  }

  async #createNew<T extends Stored<KubeObject>>({ resource, store, request, ...of }: Creation<T>): Promise<T> {
    const { client, creationTimes } = this.#options
    const { name, idempotency } = request
    of.requireRoom()
    for (let attempt = 0; attempt < ID_ATTEMPTS; attempt++) {
      try {
        const object = of.objectOf({ id: idOf(request, attempt), idempotency, createdAt: creationTimes.next() })
        return await this.#waitForCache(await client.create(resource, object), store)
      } catch (error) {
        if (isInvalid(error)) throw invalidRequest(errorsOfRefusal(error, { displayName: "name" }))
        if (!isAlreadyExists(error)) throw error
        // A replica that was too slow for its turn made it, or another object has the generated id.
        const earlier = idempotency && (await this.#earlier(resource, idempotency))
        if (earlier !== undefined) return earlier
      }
    }
    throw unavailable(`Every generated id of ${quote(name)} is in use: send the request again.`)
  }

  async #waitForCache<T extends Stored<KubeObject>>(object: T, store: Store<T>): Promise<T> {
    await waitWithTimeout(CACHE_WAIT_MS, (signal) => store.waitFor(object.metadata.resourceVersion, signal))
    return object
  }
}

/** @throws Problem 422 if another request created the object, 409 if it is being deleted */
function acceptEarlier<T extends Stored<KubeObject>>(earlier: T, idempotency: AccountIdempotency): T {
  const object = replay(earlier, idempotency)
  if (!isBeingDeleted(object)) return object
  const detail = `The ${object.kind.toLowerCase()} that this Idempotency-Key created is being deleted: choose a new key.`
  throw beingDeleted(detail)
}

/** Organization or project to create. */
interface Creation<T extends Stored<KubeObject>> {
  resource: Resource<T>
  store: Store<T>
  request: CreationRequest
  objectOf: (identity: AccountIdentity) => T
  /** @throws Problem 403 at the maximum number of objects */
  requireRoom: () => void
}

interface CreationRequest {
  /** Display name. */
  name: string
  idempotency?: AccountIdempotency
}

/** @param by the caller, and the organization of a project */
function requestOf(wanted: { name: string }, by: string, key: string | undefined): CreationRequest {
  const { name } = wanted
  if (key === undefined) return { name }
  return { name, idempotency: { key, requestHash: requestHash(wanted), scope: JSON.stringify([by, key]) } }
}

/** Returns a readable id. Requests with one key try the same ids in the same order, also on different replicas. */
function idOf({ name, idempotency }: CreationRequest, attempt: number): string {
  if (idempotency === undefined) return makeId(name)
  const entropy = createHash("sha256").update(`${idempotency.scope} ${attempt}`).digest()
  return makeId(name, entropy.subarray(0, KEYED_ID_BYTES))
}

/** Checks the form of an id, because the id becomes a part of the API server's URL. */
function isId(text: string): boolean {
  return /^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$/.test(text) && text.length <= 253
}

function requireAdmin({ role }: Pick<Membership, "role">): void {
  if (role === "member")
    throw forbidden("This request needs the role admin or higher in the organization; yours is member.")
}

function noOrganization(id: string, user: User): Problem {
  return notFound(withWarning(`The organization ${quote(id)} does not exist.`, user))
}

function noProject(id: string, user: User): Problem {
  return notFound(withWarning(`The project ${quote(id)} does not exist.`, user))
}

/** Adds why Berth can't see groups that may have a role there. It depends on the token only. */
function withWarning(detail: string, user: User): string {
  const warning = groupsWarning(user)
  return warning === undefined ? detail : `${detail} ${warning}`
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

/** Replaces an object. Returns undefined if the object was changed or deleted since it was read. */
async function replaceAccount<T extends Stored<KubeObject>>(
  client: CallerClient,
  resource: Resource<T>,
  object: T,
): Promise<T | undefined> {
  try {
    return await client.replace(resource, object)
  } catch (error) {
    if (isConflict(error) || isNotFound(error)) return undefined
    if (isInvalid(error)) throw invalidRequest(errorsOfRefusal(error), "The change")
    throw error
  }
}

function pageOf<T>(items: readonly T[], { offset, limit }: Page): T[] {
  return items.slice(offset, offset + limit)
}
