import { findCondition } from "../../apis/conditions.ts"
import { ConnectionCondition, type StoredConnection } from "../../apis/connection.ts"
import type { CloudAccount } from "../../cloud/provider.ts"
import { NAMESPACE_INDEX } from "../../identity/catch-up.ts"
import type { Store } from "../../kube/store.ts"
import type { Payers, RefusedPayer } from "../../placement/market.ts"
import type { Payer } from "../../router/rest.ts"
import { sealCredentials } from "../../sealing/credentials.ts"
import type { CopyCredentials } from "../job/options.ts"
import { CredentialsUnusable, credentialsOf, isVerified, projectOf } from "./credentials.ts"
import type { CredentialSources } from "./options.ts"

export interface PayersOptions {
  /** Accounts that need no connection: they pay for every project. */
  ownAccounts: readonly CloudAccount[]
  /** With NAMESPACE_INDEX. */
  connections: Store<StoredConnection>
  /** The types of connections that VMs can be made by. */
  types: readonly string[]
  /** Where Secrets are known: a connection whose Secret has changed pays again once the new credentials are verified. */
  sources?: Pick<CredentialSources, "secrets">
}

/** Who can pay for a project's VMs: its verified connections, and the accounts that need none. */
export function payersOf({ ownAccounts, connections, types, sources }: PayersOptions): Payers {
  const own: Payer[] = ownAccounts.map(({ cloud }) => ({ cloud }))
  return {
    of: (namespace) => {
      const found = connections.byIndex(NAMESPACE_INDEX, namespace)
      return [...own, ...found.flatMap((connection) => payerOf(connection, types, sources) ?? [])]
    },
    refused: (namespace) => connections.byIndex(NAMESPACE_INDEX, namespace).flatMap(launchRefusal),
  }
}

/** Why a connection that is Ready pays for no VM. */
function launchRefusal({ metadata, spec, status }: StoredConnection): RefusedPayer[] {
  const { status: isPermitted, message = "" } =
    findCondition(status?.conditions, ConnectionCondition.LaunchPermitted) ?? {}
  return isPermitted === "False" ? [{ cloud: spec.type, connection: metadata.name, message }] : []
}

function payerOf(
  connection: StoredConnection,
  types: readonly string[],
  sources: PayersOptions["sources"],
): Payer | undefined {
  const { metadata, spec, status } = connection
  const account = status?.account
  if (account === undefined || !types.includes(spec.type) || !isVerified(connection, sources)) return undefined
  if (launchRefusal(connection).length > 0) return undefined
  return { cloud: spec.type, connection: metadata.name, account }
}

/**
 * Gives Launches their copies: what is sealed in a connection as it is, what a Secret has sealed now. Only of what was
 * verified for the account that the Launch is pinned to: a VM must be ended where it was made.
 */
export function credentialsCopier(connections: Store<StoredConnection>, sources: CredentialSources): CopyCredentials {
  return async ({ spec }) => {
    const connection = connections.get({ namespace: spec.job.namespace, name: spec.connection ?? "" })
    if (connection === undefined || !isVerified(connection, sources)) return undefined
    if (connection.status?.account !== spec.account || connection.spec.type !== spec.offer.cloud) return undefined
    try {
      const { fields, project } = await credentialsOf(connection, sources)
      const { type, sealedCredentials } = connection.spec
      const context = { project, name: connection.metadata.name }
      const sealed = sealedCredentials ?? (await sealCredentials(sources.sealer, { type, fields }, context))
      return { project, sealedCredentials: sealed }
    } catch (error) {
      // The controller is about to say so in the connection's condition.
      if (error instanceof CredentialsUnusable) return undefined
      throw error
    }
  }
}

/** Where VMs may be that verified connections made, and of which no Launch tells any more. */
export function accountsInUse(connections: Store<StoredConnection>, sources: CredentialSources): CloudAccount[] {
  return connections.list().flatMap((connection) => {
    const { metadata, spec, status = {} } = connection
    const project = projectOf(metadata.namespace ?? "", sources)
    if (project === undefined || status.account === undefined || !isVerified(connection, sources)) return []
    const account = { cloud: spec.type, account: status.account, project, connection: metadata.name }
    return (status.regions ?? []).map((region) => ({ ...account, region }))
  })
}
