import { SERVICE_ACCOUNTS, type ServiceAccount } from "../../../identity/machine-users.ts"
import { isNotFound } from "../../../kube/errors.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { type ApiKeyControllerOptions, FIELD_MANAGER } from "../dependencies.ts"

/** Creates a machine user. @throws KubeError AlreadyExists, after which the next look tells whose it is */
export async function createUser(
  user: ServiceAccount,
  { client, users }: ApiKeyControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const written = await client.create(SERVICE_ACCOUNTS, user, { fieldManager: FIELD_MANAGER })
  context.wrote(users.store, written)
}

/** Deletes a machine user: this one, not another that has its name by now. */
export async function deleteUser(
  user: ServiceAccount,
  { client, users }: ApiKeyControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const { uid = "" } = user.metadata
  try {
    await client.delete(SERVICE_ACCOUNTS, user.metadata, { preconditions: { uid } })
    context.deleted(users.store, user)
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
}
