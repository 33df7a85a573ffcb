import type { ConnectionStatus, StoredConnection } from "../../../apis/connection.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { CONNECTIONS, type ConnectionControllerOptions, FIELD_MANAGER } from "../dependencies.ts"

/** Fields that go with the credentials that they were true of: in a merge patch only null takes them away. */
const NOTHING = { account: null, lastVerifiedTime: null, verifiedCredentials: null }

/** Makes the status this one, upon the version that was decided on. @throws KubeError Conflict */
export async function writeStatus(
  connection: StoredConnection,
  status: ConnectionStatus,
  { client, connections }: ConnectionControllerOptions,
  context: ReconcileContext,
): Promise<StoredConnection> {
  const { namespace, name, resourceVersion } = connection.metadata
  const merge = { metadata: { resourceVersion }, status: { ...NOTHING, ...status } }
  const options = { fieldManager: FIELD_MANAGER }
  const written = await client.patchStatus(CONNECTIONS, { namespace, name }, { merge }, options)
  context.wrote(connections.store, written)
  return written
}
