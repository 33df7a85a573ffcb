import { ORGANIZATION, type StoredOrganization } from "../apis/organization.ts"
import { PROJECT, type SpendCaps, type StoredProject } from "../apis/project.ts"
import type { KubeClient } from "../kube/client.ts"
import { ifFound } from "../kube/errors.ts"
import { resourceOf } from "../kube/resource.ts"
import type { Store } from "../kube/store.ts"
import type { ProjectScope } from "./principal.ts"

export const PROJECTS = resourceOf<StoredProject>(PROJECT)
export const ORGANIZATIONS = resourceOf<StoredOrganization>(ORGANIZATION)

/** Returns a function that finds the spend caps of the project that a namespace belongs to. */
export function spendCapsIn(projects: Store<StoredProject>): (namespace: string) => SpendCaps | undefined {
  return (namespace) => projects.list().find(({ status }) => status?.namespace === namespace)?.spec.caps
}

/** What a host says about the project: a label, none (a host such as localhost or an IP), or something impossible. */
export type HostLabel = { kind: "project"; name: string } | { kind: "none" } | { kind: "invalid" }

const DNS_LABEL = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/

/** The project label of `<project>.<baseDomain>`; host names are case-insensitive, a final dot is allowed. */
export function hostLabel(hostname: string, baseDomain: string): HostLabel {
  const host = hostname.toLowerCase().replace(/\.$/, "")
  const suffix = `.${baseDomain.toLowerCase()}`
  if (!host.endsWith(suffix)) return { kind: "none" }
  const name = host.slice(0, -suffix.length)
  return DNS_LABEL.test(name) && name.length <= 40 ? { kind: "project", name } : { kind: "invalid" }
}

export interface ProjectDirectoryOptions {
  client: Pick<KubeClient, "get">
  store: Store<StoredProject>
  /** Projects are the host names one label below it. */
  baseDomain: string
  /** Project of hosts without a project label; none: such hosts have no project. */
  defaultProject?: string | undefined
}

/** Finds the project that a request is for. */
export class ProjectDirectory {
  readonly #options: ProjectDirectoryOptions

  constructor(options: ProjectDirectoryOptions) {
    this.#options = options
  }

  /**
   * The project of a host; undefined when it has none. With `onlyCached` the API server is not asked about what the
   * cache does not have. Throws KubeError when the API server is away.
   */
  async find(hostname: string, { onlyCached = false } = {}): Promise<StoredProject | undefined> {
    const label = hostLabel(hostname, this.#options.baseDomain)
    const name = label.kind === "project" ? label.name : this.#options.defaultProject
    if (label.kind === "invalid" || name === undefined) return undefined
    const cached = this.#options.store.get({ name })
    return onlyCached || cached?.status?.namespace !== undefined ? cached : this.#read(name)
  }

  /** Another replica may just have made it, or its controller confirmed it: the cache has the last word on neither. */
  async #read(name: string): Promise<StoredProject | undefined> {
    return ifFound(this.#options.client.get(PROJECTS, { name }))
  }
}

/**
 * Where a project's objects live; undefined until its controller has confirmed that the namespace is the project's. What
 * a Project asks for counts for nothing: it may ask for somebody else's.
 */
export function scopeOf({ metadata, spec, status }: StoredProject): ProjectScope | undefined {
  if (status?.namespace === undefined) return undefined
  return { id: metadata.name, organizationId: spec.organization, namespace: status.namespace }
}
