import type { SpendCaps } from "../apis/caps.ts"
import type { StoredOrganization } from "../apis/organization.ts"
import type { StoredProject } from "../apis/project.ts"
import type { KubeClient } from "../kube/client.ts"
import { ifFound } from "../kube/errors.ts"
import type { Change, IndexFunction, Store } from "../kube/store.ts"
import { PROJECTS } from "../resources.ts"
import { creatorOf } from "./members.ts"
import type { ProjectScope } from "./principal.ts"

/** Objects that have caps, and the caps of the installation. */
export interface CapHolders {
  projects: Store<StoredProject>
  organizations: Store<StoredOrganization>
  installation: SpendCaps | undefined
}

/** Returns a function that finds the levels with caps that the project of a namespace belongs to, the project first. */
export function capsIn(holders: CapHolders) {
  const { projects, organizations, installation } = holders
  return (namespace: string) => {
    const project = projectOf(namespace, projects)
    const organization = project && organizations.get({ name: project.spec.organization })
    const levels = [
      project && projectCaps(project),
      organization && organizationCaps(organization, holders),
      installationCaps(installation),
    ]
    return levels.filter((level) => level !== undefined)
  }
}

/** Level of an object's caps, and which costs count there. */
type CapsOf<Level> = {
  level: Level
  name?: string
  caps: SpendCaps
  owns: (namespace: string, organization: string | undefined) => boolean
}

/** Returns the caps of a project; undefined without any. */
export function projectCaps({ metadata, spec, status }: StoredProject): CapsOf<"project"> | undefined {
  const { caps } = spec
  if (!hasCaps(caps)) return undefined
  return { level: "project", name: metadata.name, caps, owns: (namespace) => namespace === status?.namespace }
}

/** Returns the caps of an organization; undefined without any. Costs of its deleted projects count too. */
export function organizationCaps(
  { metadata, spec }: StoredOrganization,
  { projects }: Pick<CapHolders, "projects">,
): CapsOf<"organization"> | undefined {
  const { name } = metadata
  const { caps } = spec
  if (!hasCaps(caps)) return undefined
  const owns = (namespace: string, recorded = projectOf(namespace, projects)?.spec.organization) => recorded === name
  return { level: "organization", name, caps, owns }
}

/** Returns the caps of the installation; undefined without any. */
export function installationCaps(caps: SpendCaps | undefined): CapsOf<"installation"> | undefined {
  return hasCaps(caps) ? { level: "installation", caps, owns: () => true } : undefined
}

function hasCaps(caps: SpendCaps | undefined): caps is SpendCaps {
  const { maxVms, maxGpus, maxIdleVms, maxHourlyUsd, maxMonthlyUsd } = caps ?? {}
  return [maxVms, maxGpus, maxIdleVms, maxHourlyUsd, maxMonthlyUsd].some((cap) => cap !== undefined)
}

/** Returns who the projects belong to. */
export function tenantsIn(projects: Store<StoredProject>, organizations: Store<StoredOrganization>) {
  const organizationOf = (namespace: string) => projectOf(namespace, projects)?.spec.organization
  const personOf = (organization: string) => personIn(organizations, organization)
  return {
    organizationOf,
    personOf: (namespace: string) => {
      const organization = organizationOf(namespace)
      return organization === undefined ? undefined : personOf(organization)
    },
    persons: () => new Set(projects.list().map(({ spec }) => personOf(spec.organization))).size,
  }
}

/** Returns the id of the person who created an organization, or the organization's name if that is unknown. */
export function personIn(organizations: Store<StoredOrganization>, organization: string): string {
  const found = organizations.get({ name: organization })
  return (found && creatorOf(found)) ?? organization
}

/** Index that caches of projects must have: each job asks for its project at each reconcile. */
export const PROJECT_OF_NAMESPACE: Record<"projectOfNamespace", IndexFunction<StoredProject>> = {
  projectOfNamespace: ({ status }) => (status?.namespace === undefined ? [] : [status.namespace]),
}

function projectOf(namespace: string, projects: Store<StoredProject>): StoredProject | undefined {
  return projects.byIndex("projectOfNamespace", namespace)[0]
}

/**
 * Returns a function that says why the project of a namespace takes no new work: the project or its organization is being
 * deleted. Undefined: it does.
 */
export function endingIn(
  projects: Store<StoredProject>,
  organizations: Store<StoredOrganization>,
): (namespace: string) => string | undefined {
  return (namespace) => {
    const project = projectOf(namespace, projects)
    if (project === undefined) return undefined
    if (project.metadata.deletionTimestamp !== undefined) return `the project ${project.metadata.name} is being deleted`
    const organization = organizations.get({ name: project.spec.organization })
    if (organization?.metadata.deletionTimestamp === undefined) return undefined
    return `the organization ${project.spec.organization} is being deleted`
  }
}

/** Returns the namespaces of the projects whose deletion, or whose organization's deletion, a change has begun. */
export function endedBy(
  { old, current }: Change<StoredProject | StoredOrganization>,
  projects: Store<StoredProject>,
): string[] {
  if (current?.metadata.deletionTimestamp === undefined || old?.metadata.deletionTimestamp !== undefined) return []
  return namespacesUnder(current, projects)
}

/** Returns the namespaces of a project, or of an organization's projects. One of the other kind may have the same name. */
export function namespacesUnder(
  { metadata: { name } }: StoredProject | StoredOrganization,
  projects: Store<StoredProject>,
): string[] {
  const its = projects.list().filter(({ metadata, spec }) => metadata.name === name || spec.organization === name)
  return its.flatMap(({ status }) => status?.namespace ?? [])
}

/** Project that an address names: a name, none (such as the host localhost or an IP address), or an invalid one. */
export type ProjectLabel = { kind: "project"; name: string } | { kind: "none" } | { kind: "invalid" }

const DNS_LABEL = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/

/** Returns the label of a text that must name a project. Names are in lower case. */
export function projectLabel(name: string): ProjectLabel {
  return DNS_LABEL.test(name) && name.length <= 40 ? { kind: "project", name } : { kind: "invalid" }
}

/**
 * Returns the project label of `<project>.<baseDomain>`. Host names are case-insensitive and may end with a dot.
 * @param baseDomain undefined if no host names a project
 */
export function hostLabel(hostname: string, baseDomain: string | undefined): ProjectLabel {
  const host = hostname.toLowerCase().replace(/\.$/, "")
  const suffix = `.${baseDomain?.toLowerCase()}`
  if (baseDomain === undefined || !host.endsWith(suffix)) return { kind: "none" }
  return projectLabel(host.slice(0, -suffix.length))
}

export interface ProjectDirectoryOptions {
  client: Pick<KubeClient, "get">
  store: Store<StoredProject>
  /** Project of addresses that name none. Absent: such addresses have no project. */
  defaultProject?: string | undefined
}

/** Finds the project of a request. */
export class ProjectDirectory {
  readonly #options: ProjectDirectoryOptions

  constructor(options: ProjectDirectoryOptions) {
    this.#options = options
  }

  /**
   * Returns the project that an address names, or undefined. With `onlyCached`, projects that are not in the cache are
   * not looked up in the API server.
   * @throws KubeError if the API server is unavailable
   */
  async find(label: ProjectLabel, { onlyCached = false } = {}): Promise<StoredProject | undefined> {
    const name = label.kind === "project" ? label.name : this.#options.defaultProject
    if (label.kind === "invalid" || name === undefined) return undefined
    const cached = this.#options.store.get({ name })
    return onlyCached || cached?.status?.namespace !== undefined ? cached : this.#read(name)
  }

  /**
   * Reads from the API server. The cache may miss a project that another replica has just created, or its new status.
   */
  async #read(name: string): Promise<StoredProject | undefined> {
    return ifFound(this.#options.client.get(PROJECTS, { name }))
  }
}

/**
 * Returns where a project's objects live; undefined until its controller has confirmed the namespace. The namespace in
 * the spec is ignored, because it may belong to others.
 */
export function projectScope({ metadata, spec, status }: StoredProject): ProjectScope | undefined {
  if (status?.namespace === undefined) return undefined
  return { id: metadata.name, organizationId: spec.organization, namespace: status.namespace }
}
