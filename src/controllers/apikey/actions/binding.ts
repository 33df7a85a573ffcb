import { isNotFound } from "../../../kube/errors.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { type ApiKeyControllerOptions, FIELD_MANAGER, ROLE_BINDINGS, type RoleBinding } from "../dependencies.ts"

/** Gives a machine user its role. @throws KubeError AlreadyExists, after which the next look tells whose it is */
export async function createBinding(
  binding: RoleBinding,
  { client, bindings }: ApiKeyControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const written = await client.create(ROLE_BINDINGS, binding, { fieldManager: FIELD_MANAGER })
  context.wrote(bindings.store, written)
}

/** Deletes a binding: this one, not another that has its name by now. */
export async function deleteBinding(
  binding: RoleBinding,
  { client, bindings }: ApiKeyControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const { uid = "" } = binding.metadata
  try {
    await client.delete(ROLE_BINDINGS, binding.metadata, { preconditions: { uid } })
    context.deleted(bindings.store, binding)
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
}
