import { API_KEY_FINALIZER, type ApiKeyStatus, type StoredApiKey } from "../../core/apis/apikey.ts"
import { SERVICE_ACCOUNTS, type ServiceAccount } from "../../core/identity/machine-users.ts"
import { ROLE_BINDINGS, type RoleBinding } from "../../core/identity/role-bindings.ts"
import type { ApiObject } from "../../core/kube/resource.ts"
import type { Change } from "../../core/kube/store.ts"
import { API_KEYS } from "../../core/resources.ts"
import { Controller, type ReconcileContext, watchSource } from "../../core/runtime/controller.ts"
import { type ObjectReconciler, reconcileObject } from "../../core/runtime/reconcile-object.ts"
import { keysNamedBy } from "../caches.ts"
import { addFinalizer, create, dropFinalizer, remove, type Writer, writeStatus } from "../writes.ts"
import { type ApiKeyAction, type ApiKeyObservation, decide } from "./decide.ts"
import type { ApiKeyControllerDependencies } from "./dependencies.ts"
import { findLeftovers, gather } from "./gather.ts"

/** Owner of the fields that the ApiKey controller writes. */
const FIELD_MANAGER = "berth-apikey-controller"

/** Creates the controller that creates each ApiKey's machine user, binds it to its role, and deletes both again. */
export function createApiKeyController(options: ApiKeyControllerDependencies): Controller {
  const { apiKeys, users, bindings, clock, recorder, logger } = options
  const reconciler: ObjectReconciler<StoredApiKey, ApiKeyObservation, ApiKeyStatus, ApiKeyAction> = {
    store: apiKeys.store,
    clock,
    recorder,
    gather: (key) => gather(key, options),
    decide,
    writeStatus: (key, status, context) => writeStatus(key, status, createWriters(options).keys, context),
    act: (key, action, context) => act(key, action, options, context),
  }
  return new Controller({
    name: "apikey",
    reconcile: async (name, context) => {
      await deleteLeftovers(name, options, context)
      return reconcileObject(name, reconciler, context)
    },
    sources: [watchSource(apiKeys), watchSource(users, keysOf), watchSource(bindings, keysOf)],
    clock,
    logger,
  })
}

function keysOf({ old, current }: Change<ApiObject>): string[] {
  return [...new Set([old, current].flatMap((object) => (object === undefined ? [] : keysNamedBy(object))))]
}

async function act(
  key: StoredApiKey,
  action: ApiKeyAction,
  options: ApiKeyControllerDependencies,
  context: ReconcileContext,
): Promise<void> {
  const { keys, users, bindings } = createWriters(options)
  switch (action.do) {
    case "addFinalizer":
      return addFinalizer(key, API_KEY_FINALIZER, keys, context)
    case "createUser":
      return create(action.user, users, context)
    case "deleteUser":
      return remove(action.user, users, context)
    case "createBinding":
      return create(action.binding, bindings, context)
    case "deleteBinding":
      return remove(action.binding, bindings, context)
    case "dropFinalizer":
      return dropFinalizer(key, API_KEY_FINALIZER, keys, context)
  }
}

/** Deletes the machine user of an ApiKey whose finalizer a user removed before the deletion. */
async function deleteLeftovers(
  name: string,
  options: ApiKeyControllerDependencies,
  context: ReconcileContext,
): Promise<void> {
  const leftovers = await findLeftovers(name, options)
  const { users, bindings } = createWriters(options)
  for (const binding of leftovers.bindings) await remove(binding, bindings, context)
  for (const user of leftovers.users) await remove(user, users, context)
}

function createWriters({ client, apiKeys, users, bindings }: ApiKeyControllerDependencies): {
  keys: Writer<StoredApiKey>
  users: Writer<ServiceAccount>
  bindings: Writer<RoleBinding>
} {
  const base = { client, fieldManager: FIELD_MANAGER }
  return {
    keys: { ...base, resource: API_KEYS, store: apiKeys.store },
    users: { ...base, resource: SERVICE_ACCOUNTS, store: users.store },
    bindings: { ...base, resource: ROLE_BINDINGS, store: bindings.store },
  }
}
