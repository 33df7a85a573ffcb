import { OWN_CLOUD } from "../core/apis/machine.ts"
import { aws } from "./aws/definition.ts"
import { azure } from "./azure/definition.ts"
import { cloudflare } from "./cloudflare/definition.ts"
import type { ProviderDefinition, VmsDefinition } from "./definition.ts"
import { dockerhub } from "./dockerhub/definition.ts"
import { gcp } from "./gcp/definition.ts"
import { github } from "./github/definition.ts"
import { nebius } from "./nebius/definition.ts"

/** The providers of accounts, by the type of their connections: the only list. Its order is that of all lists for people. */
export const DEFINITIONS = { aws, gcp, azure, cloudflare, dockerhub, github, nebius } as const satisfies Readonly<
  Record<string, ProviderDefinition>
>

type Definitions = typeof DEFINITIONS

/** Name of a provider that has VMs. */
export type VmCloud = {
  [Name in keyof Definitions]: Definitions[Name] extends { vms: object } ? Name : never
}[keyof Definitions]

/** Names of the providers that have VMs. */
export const VM_CLOUDS: readonly VmCloud[] = (Object.keys(DEFINITIONS) as (keyof Definitions)[]).filter(
  (name): name is VmCloud => vmsOf(name) !== undefined,
)

/** Names of the clouds that a job may name: those with VMs, and the machines that people own. */
export const JOB_CLOUDS = [...VM_CLOUDS, OWN_CLOUD] as const

/** Returns the facts about a provider; undefined if there is none of this name. */
export function findDefinition(name: string): ProviderDefinition | undefined {
  return Object.hasOwn(DEFINITIONS, name) ? DEFINITIONS[name as keyof Definitions] : undefined
}

/** Returns the facts about a cloud's VMs; undefined for a name without any, such as the local cloud. */
export function vmsOf(name: string): VmsDefinition | undefined {
  return findDefinition(name)?.vms
}
