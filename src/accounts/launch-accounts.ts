import type { CloudAccount } from "../clouds/cloud.ts"
import { findCondition } from "../core/apis/conditions.ts"
import { ConnectionCondition, type StoredConnection } from "../core/apis/connection.ts"
import { defined } from "../core/apis/defined.ts"
import type { VmDisk } from "../core/apis/disk.ts"
import type { Launch } from "../core/apis/launch.ts"
import type { StoredMachine } from "../core/apis/machine.ts"
import type { FrozenSettings } from "../core/apis/vm-settings.ts"
import { frozenSettings, toVmSettings, VM_SETTING_FIELDS } from "../core/apis/vm-settings.ts"
import { NAMESPACE_INDEX } from "../core/identity/catch-up.ts"
import type { Store } from "../core/kube/store.ts"
import { sealCredentials } from "../core/sealing/credentials.ts"
import { type Images, imageDiskGib } from "../market/placement/inputs.ts"
import { ownAccount } from "../market/placement/machines.ts"
import type { DeniedAccount, LaunchAccounts } from "../market/placement/market.ts"
import type { LaunchAccount } from "../market/router/cooldown.ts"
import { type CredentialSources, CredentialsUnusable, isVerified, projectOf, readCredentials } from "./credentials.ts"

/**
 * Parts of a connection that a Launch keeps: the credentials, which terminate the VM after the connection changes or is
 * deleted, and the settings of the VM.
 */
export type ConnectionCopy = Required<Pick<Launch["spec"], "project" | "sealedCredentials">> &
  FrozenSettings & {
    /** Version of the credentials. It contains no part of them. */
    version: string
  }

/**
 * Returns the parts of its connection that a Launch keeps. Returns undefined if the connection can no longer pay, now
 * opens another account, or starts no VMs in the region.
 */
export type CopyCredentials = (launch: Launch) => Promise<ConnectionCopy | undefined>

export interface LaunchAccountsOptions {
  /** Accounts that need no connection. Every project can use them. */
  ownAccounts: readonly CloudAccount[]
  /** Has NAMESPACE_INDEX. */
  connections: Store<StoredConnection>
  /** Types of connections that can launch VMs. */
  types: readonly string[]
  /** Machines that people own. Absent: there are none. */
  machines?: Pick<Store<StoredMachine>, "list"> | undefined
  /**
   * Source of the Secrets' versions. A connection whose Secret has changed is unusable until the new credentials are
   * verified.
   */
  sources?: Pick<CredentialSources, "secrets">
}

/**
 * Returns the accounts that a project can launch VMs with: its verified connections, and the accounts that need no
 * connection.
 */
export function createLaunchAccounts({
  ownAccounts,
  connections,
  types,
  machines,
  sources,
}: LaunchAccountsOptions): LaunchAccounts {
  const own: LaunchAccount[] = ownAccounts.map(({ cloud }) => ({ cloud }))
  return {
    of: (namespace) => {
      const found = connections.byIndex(NAMESPACE_INDEX, namespace)
      return [
        ...own,
        ...ownAccount(machines?.list() ?? [], namespace),
        ...found.flatMap((connection) => launchAccountOf(connection, types, sources) ?? []),
      ]
    },
    refused: (namespace) => connections.byIndex(NAMESPACE_INDEX, namespace).flatMap(launchRefusal),
  }
}

/** Returns the reason why a Ready connection may not launch VMs; empty if it may. */
function launchRefusal({ metadata, spec, status }: StoredConnection): DeniedAccount[] {
  const { status: isPermitted, message = "" } =
    findCondition(status?.conditions, ConnectionCondition.LaunchPermitted) ?? {}
  return isPermitted === "False" ? [{ cloud: spec.type, connection: metadata.name, message }] : []
}

function launchAccountOf(
  connection: StoredConnection,
  types: readonly string[],
  sources: LaunchAccountsOptions["sources"],
): LaunchAccount | undefined {
  const { metadata, spec, status } = connection
  const account = status?.account
  if (account === undefined || !types.includes(spec.type) || !isVerified(connection, sources)) return undefined
  if (launchRefusal(connection).length > 0) return undefined
  const { verifiedCredentials: credentials } = status ?? {}
  const regions = spec.subnets === undefined ? undefined : Object.keys(spec.subnets)
  return {
    cloud: spec.type,
    connection: metadata.name,
    account,
    ...defined({ credentials }),
    ...(VM_SETTING_FIELDS.some((field) => spec[field] !== undefined) && { settings: toVmSettings(spec) }),
    ...defined({ regions }),
  }
}

/**
 * Copies credentials and settings into Launches: the sealed text of a connection unchanged, or the current content of a
 * Secret, sealed. Both come from the same version of the connection. Copies only credentials that were verified for the Launch's account, because the VM must be terminated there.
 * @param images knows the size of the job's image, which its disk must hold
 */
export function credentialsCopier(
  connections: Store<StoredConnection>,
  sources: CredentialSources,
  images?: Pick<Images, "find">,
): CopyCredentials {
  return async ({ spec }) => {
    const connection = connections.get({ namespace: spec.job.namespace, name: spec.connection ?? "" })
    if (connection === undefined || !isVerified(connection, sources)) return undefined
    if (connection.status?.account !== spec.account || connection.spec.type !== spec.offer.cloud) return undefined
    const settings = frozenSettings(connection.spec, spec.offer, requiredDisk(spec, images))
    if (settings === undefined) return undefined
    try {
      const { fields, project, version } = await readCredentials(connection, sources)
      const { type, sealedCredentials } = connection.spec
      const context = { project, name: connection.metadata.name }
      const sealed = sealedCredentials ?? (await sealCredentials(sources.sealer, { type, fields }, context))
      return { project, sealedCredentials: sealed, version, ...settings }
    } catch (error) {
      // The controller is about to write the cause into the connection's condition.
      if (error instanceof CredentialsUnusable) return undefined
      throw error
    }
  }
}

/** Returns the disk that a Launch's job requires: what the job says, and never less than its image needs. */
function requiredDisk({ job, run, offer, disk }: Launch["spec"], images?: Pick<Images, "find">): VmDisk | undefined {
  const needed = images && imageDiskGib(images.find(job.namespace, run.image), offer.cloud)
  if (needed === undefined) return disk
  return { ...disk, requiredGib: Math.max(disk?.requiredGib ?? 0, needed) }
}

/** Returns the regions in which verified connections may have VMs without a Launch. */
export function accountsInUse(connections: Store<StoredConnection>, sources: CredentialSources): CloudAccount[] {
  return connections.list().flatMap((connection) => {
    const { metadata, spec, status = {} } = connection
    const project = projectOf(metadata.namespace ?? "", sources)
    if (project === undefined || status.account === undefined || !isVerified(connection, sources)) return []
    const account = { cloud: spec.type, account: status.account, project, connection: metadata.name }
    return (status.regions ?? []).map((region) => ({ ...account, region }))
  })
}
