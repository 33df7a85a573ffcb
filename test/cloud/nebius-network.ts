import type { Json } from "../../src/clouds/nebius/api.ts"
import { type NebiusProject, regionCodeOf, subnetsOf } from "./nebius-creation.ts"
import { notFound, type Refusal, refusal } from "./nebius-description.ts"

/** Resource as the API shows it. Its name is unique within its parent. */
export interface Shown extends Json {
  metadata: Json & { id: string; parentId: string; name: string }
  spec: Json
}

/** Security groups and rules of all networks, and the subnets, which tests declare. */
export class NebiusNetwork {
  /** Groups by id. Each network has one that is used if an interface names none. */
  readonly groups = new Map<string, Shown>()
  /** Rules by id. */
  readonly rules = new Map<string, Shown>()
  readonly #projects: readonly NebiusProject[]
  #ids = 1

  constructor(projects: readonly NebiusProject[]) {
    this.#projects = projects
    for (const project of projects)
      for (const { networkId } of subnetsOf(project)) {
        const id = networkId.replace(/^vpcnetwork/, "vpcsecuritygroup")
        const metadata = { id, parentId: project.id, name: `default-${networkId}` }
        this.groups.set(id, { metadata, spec: { networkId }, status: { state: "READY", default: true } })
      }
  }

  /** Networks of the groups, by the groups' ids. */
  get groupNetworks(): ReadonlyMap<string, string> {
    return new Map([...this.groups].map(([id, { spec }]) => [id, String(spec["networkId"])]))
  }

  /** Returns the project of a group, a rule's group or a subnet; undefined if there is none. */
  projectOf(id: string): string | undefined {
    const group = this.groups.get(id) ?? this.groups.get(this.rules.get(id)?.metadata.parentId ?? "")
    return (
      group?.metadata.parentId ?? this.#projects.find((each) => subnetsOf(each).some((found) => found.id === id))?.id
    )
  }

  subnets(): Shown[] {
    return this.#projects.flatMap((project) =>
      subnetsOf(project).map(({ id, name, networkId }) => ({
        metadata: { id, parentId: project.id, name },
        spec: { networkId },
        status: { state: "READY", ipv4PrivatePools: [{ poolId: "vpcpool-e00private", cidrs: ["10.0.0.0/16"] }] },
      })),
    )
  }

  createGroup(request: Json): Shown {
    const { metadata, spec } = request as Shown
    const networks = childrenOf(this.subnets(), { parentId: metadata.parentId }).map((each) => each.spec["networkId"])
    if (!networks.includes(spec["networkId"] as string)) throw notFound(String(spec["networkId"]))
    return this.#added(this.groups, "vpcsecuritygroup", { metadata, spec, status: { state: "READY" } })
  }

  createRule(request: Json): Shown {
    const { metadata, spec } = request as Shown
    if (!this.groups.has(metadata.parentId)) throw notFound(metadata.parentId)
    const { access } = spec
    // "If not specified or set to 0, defaults to 500", "DENY rules are evaluated before ALLOW rules" (security_rule.proto).
    const effectivePriority = 2 * (Number(spec["priority"] ?? 0) || 500) + (access === "ALLOW" ? 1 : 0)
    const direction = "ingress" in spec ? "INGRESS" : "EGRESS"
    const status = { state: "READY", effectivePriority, direction }
    return this.#added(this.rules, "vpcsecurityrule", { metadata, spec, status })
  }

  #added(among: Map<string, Shown>, kind: string, made: Shown): Shown {
    const { parentId, name } = made.metadata
    const taken = childrenOf(among.values(), { parentId }).find(({ metadata }) => metadata.name === name)
    if (taken !== undefined) throw alreadyExists(taken.metadata.id)
    const id = `${kind}-${regionCodeOf(parentId)}${String(this.#ids++).padStart(6, "0")}`
    const added = { ...made, metadata: { ...made.metadata, id } }
    among.set(id, added)
    return added
  }
}

export const alreadyExists = (resourceId: string): Refusal =>
  refusal("ALREADY_EXISTS", `the resource ${resourceId} has that name`, "resourceAlreadyExists", { resourceId })

interface Child {
  metadata: { id: string; parentId: string; name: string }
}

/** Returns the resources of the parent that a request names. */
export function childrenOf<T extends Child>(among: Iterable<T>, { parentId }: Json): T[] {
  return [...among].filter(({ metadata }) => metadata.parentId === parentId)
}

/** Returns the resource that a `GetByName` asks for. @throws Refusal */
export function named<T extends Child>(among: Iterable<T>, request: Json): T {
  const found = childrenOf(among, request).find(({ metadata }) => metadata.name === request["name"])
  if (found === undefined) throw notFound(String(request["name"]))
  return found
}

/** Returns the resource that a `Get` asks for. @throws Refusal */
export function withId<T extends Child>(among: Iterable<T>, { id }: Json): T {
  const found = [...among].find(({ metadata }) => metadata.id === id)
  if (found === undefined) throw notFound(String(id))
  return found
}
