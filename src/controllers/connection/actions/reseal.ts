import type { StoredConnection } from "../../../apis/connection.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { CONNECTIONS, type ConnectionControllerOptions, FIELD_MANAGER } from "../dependencies.ts"

/** Writes the same credentials sealed under the present key, upon the version that was read. @throws KubeError Conflict */
export async function reseal(
  connection: StoredConnection,
  project: string,
  { client, connections, sealer, logger }: ConnectionControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const { namespace, name, resourceVersion } = connection.metadata
  const { sealedCredentials = "" } = connection.spec
  const sealed = await sealer.reseal(sealedCredentials, { project, name })
  const merge = { metadata: { resourceVersion }, spec: { sealedCredentials: sealed } }
  const written = await client.patch(CONNECTIONS, { namespace, name }, { merge }, { fieldManager: FIELD_MANAGER })
  context.wrote(connections.store, written)
  logger.info({ namespace, connection: name }, "credentials are sealed under the present key now")
}
