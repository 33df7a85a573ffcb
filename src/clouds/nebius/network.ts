import { RegionError } from "../../core/outbound/errors.ts"
import type { LaunchSpec } from "../cloud.ts"
import { derivedIndex } from "../derived.ts"
import type { Json } from "./api.ts"
import type { Nebius, Project } from "./client.ts"
import { isAlreadyThere, isNotFound } from "./errors.ts"
import { type FollowOptions, follow, type Operation } from "./operation.ts"

/** A subnet, with what is read of it. */
interface Subnet {
  metadata: { id: string; name?: string }
  spec: { networkId: string }
  status?: { state?: string }
}

/** Name of the security group in each network, of all installations: it has no inbound rule. */
const GROUP = "berth-no-inbound"
const RULE = "berth-outbound"
/** Beginning of the keys of what is kept of networks. */
const KEPT = "network/"

/**
 * Returns the subnet of a Launch's VM. A connection with several in a region spreads its VMs over them; without any, it is
 * the first one of the network, or of the project. @throws RegionError if there is none
 */
export async function subnetFor(nebius: Nebius, project: Project, { name, network }: LaunchSpec): Promise<Subnet> {
  const { network: networkId, subnets = [] } = network ?? {}
  const all = await nebius.keep(`${KEPT}subnets/${project.id}`, () => subnetsOf(nebius, project))
  const inNetwork = all.filter(({ spec }) => networkId === undefined || spec.networkId === networkId)
  const named =
    subnets.length === 0 ? inNetwork.slice(0, 1) : inNetwork.filter((each) => subnets.includes(each.metadata.id))
  const subnet = named[derivedIndex(name, named.length)]
  if (subnet !== undefined) return subnet
  const wanted = [...(networkId === undefined ? [] : [`network ${networkId}`]), ...subnets].join(", ")
  const message = `project ${project.id} in ${project.region} has no subnet that is ready${wanted && ` of ${wanted}`}`
  throw new RegionError("NoSubnet", `${message}: create one, or correct \`network\` and \`subnets\` of the connection`)
}

async function subnetsOf(nebius: Nebius, { id: parentId, region }: Project): Promise<Subnet[]> {
  const found = (await nebius.list("vpc.v1.SubnetService/List", { parentId })) as unknown as Subnet[]
  const ready = found.filter(({ status }) => status?.state === "READY")
  // An empty answer is not kept.
  if (ready.length === 0)
    throw new RegionError("NoSubnet", `project ${parentId} in ${region} has no subnet that is ready`)
  return ready.sort((one, other) => (one.metadata.id < other.metadata.id ? -1 : 1))
}

/** Lets the next launch look for its subnet and its group again: one of them no longer exists. */
export function forgetNetworks(nebius: Nebius): void {
  nebius.forget(KEPT)
}

/**
 * Returns the id of the security group without inbound traffic in a network. Creates it if it is missing: Nebius' default
 * group may allow inbound traffic. What no rule allows is rejected (nebius/vpc/v1/security_group.proto).
 */
export async function closedGroup(
  nebius: Nebius,
  { project, networkId }: { project: Project; networkId: string },
  { fence, ...following }: FollowOptions & { fence?: (() => void) | undefined },
): Promise<string> {
  const create = async (service: string, request: { metadata: { parentId: string; name: string }; spec: Json }) => {
    const { parentId, name } = request.metadata
    const get = () => nebius.call(`${service}/GetByName`, { parentId, name })
    try {
      return idOf(await get())
    } catch (error) {
      if (!isNotFound(error)) throw error
    }
    try {
      await follow(
        nebius,
        (await nebius.call(`${service}/Create`, request, { effect: "change", fence })) as Operation,
        { ...following, startedBy: `${service}/Create` },
      )
    } catch (error) {
      // Another launch was faster.
      if (!isAlreadyThere(error)) throw error
    }
    return idOf(await get())
  }
  return await nebius.keep(`${KEPT}group/${networkId}`, async () => {
    const metadata = { parentId: project.id, name: `${GROUP}-${networkId}` }
    const groupId = await create("vpc.v1.SecurityGroupService", { metadata, spec: { networkId } })
    await create("vpc.v1.SecurityRuleService", {
      metadata: { parentId: groupId, name: RULE },
      spec: { access: "ALLOW", protocol: "ANY", egress: {} },
    })
    return groupId
  })
}

function idOf({ metadata }: Json): string {
  return String((metadata as Json)["id"])
}
