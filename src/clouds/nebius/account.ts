import { unlessAborted } from "../../core/apis/abort.ts"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import { CloudError, CredentialsError } from "../../core/outbound/errors.ts"
import { abortedRead } from "../../core/outbound/read-errors.ts"
import type { AccountOpener, Capabilities, Capability, CapabilityQuestion, ExternalAccount } from "../account.ts"
import { describe, type Findings, judgeFindings, noFindings, settleCheck } from "../capabilities.ts"
import type { Identity } from "../cloud.ts"
import type { ClientOf, Nebius, Project } from "./client.ts"
import { hourlyUsd } from "./prices.ts"

/** Opens Nebius' projects by a service account. */
export function nebiusAccounts(clientOf: ClientOf): AccountOpener {
  return (credentials: CredentialFields) => new NebiusAccount(clientOf(credentials))
}

class NebiusAccount implements ExternalAccount {
  readonly #nebius: Nebius

  constructor(nebius: Nebius) {
    this.#nebius = nebius
  }

  verify(signal: AbortSignal): Promise<Identity> {
    return settled(this.#nebius.identity(), signal)
  }

  async capabilities({ settings = {} }: CapabilityQuestion, signal: AbortSignal): Promise<Capabilities> {
    const projects = await settled(this.#nebius.projects(), signal)
    const [vms, prices] = await Promise.all([
      settleCheck(settled(vmsOf(this.#nebius, projects, settings.network), signal)),
      settleCheck(settled(pricesOf(this.#nebius, projects), signal)),
    ])
    return { vms, prices }
  }
}

async function settled<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  try {
    return await unlessAborted(work, signal)
  } catch (error) {
    throw error instanceof CloudError ? error : abortedRead(error)
  }
}

/** Checks by calls that only read. Nebius does not say which rights a service account has. */
async function vmsOf(nebius: Nebius, projects: readonly Project[], network: string | undefined): Promise<Capability> {
  const findings = noFindings()
  await Promise.all(projects.map((project) => checkProject(nebius, project, { network, findings })))
  const regions = projects.map(({ region }) => region).join(", ")
  return judgeFindings(findings, `the service account reads the VMs and subnets of its projects in ${regions}`)
}

interface Check {
  network: string | undefined
  findings: Findings
}

async function checkProject(
  nebius: Nebius,
  { id, region, tenant }: Project,
  { network, findings }: Check,
): Promise<void> {
  const missing = async (what: string, call: Promise<unknown[]>): Promise<unknown[] | undefined> => {
    try {
      return await call
    } catch (error) {
      if (!(error instanceof CredentialsError)) throw error
      const message = `the service account can't list ${what} of ${id}: give it the role \`editor\` there (${describe(error)})`
      findings.obstacles.push({ reason: "PermissionsMissing", message, missing: ["editor"] })
      return undefined
    }
  }
  const subnets = await missing("the subnets", nebius.list("vpc.v1.SubnetService/List", { parentId: id }))
  await missing("the VMs", nebius.list("compute.v1.InstanceService/List", { parentId: id }))
  const inNetwork = (subnets ?? []).filter(
    (subnet) => network === undefined || (subnet as { spec?: { networkId?: string } }).spec?.networkId === network,
  )
  if (subnets !== undefined && inNetwork.length === 0) {
    const message = `project ${id} in ${region} has no subnet${network === undefined ? "" : ` in network ${network}`}: create one`
    findings.obstacles.push({ reason: "NetworkMissing", message })
  }
  await noteQuotas(nebius, { tenant, region, findings })
}

/** Notes cards of which the tenant has none: a new tenant has a quota of 0 for some. */
async function noteQuotas(
  nebius: Nebius,
  { tenant, region, findings }: { tenant: string; region: string; findings: Findings },
): Promise<void> {
  try {
    const all = await nebius.list("quotas.v1.QuotaAllowanceService/List", { parentId: tenant })
    const quotas = all as { metadata?: { name?: string }; spec?: { limit?: string; region?: string } }[]
    const none = quotas.filter(({ spec }) => spec?.region === region && spec.limit === "0")
    const names = none.flatMap(({ metadata }) => (/gpu/.test(metadata?.name ?? "") ? [metadata?.name] : []))
    if (names.length > 0) findings.notes.push(`quota 0 in ${region}: ${names.join(", ")}`)
  } catch (error) {
    // The right to read quotas is one of the tenant. VMs start without it.
    if (!(error instanceof CredentialsError)) throw error
  }
}

async function pricesOf(nebius: Nebius, [project]: readonly Project[]): Promise<Capability> {
  if (project === undefined) return { is: "unknown", message: "the connection has no project" }
  try {
    await hourlyUsd(nebius, project, { instanceType: "cpu-d3_4vcpu-16gb", provisioning: "onDemand" })
    return { is: "granted", message: "the credentials can read the account's prices" }
  } catch (error) {
    if (!(error instanceof CredentialsError)) throw error
    return {
      is: "denied",
      reason: "PermissionsMissing",
      message: `the service account can't read prices: ${describe(error)}`,
    }
  }
}
