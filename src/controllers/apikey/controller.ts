import { API_KEY_FINALIZER, ApiKeyCondition, type StoredApiKey } from "../../apis/apikey.ts"
import { findCondition } from "../../apis/conditions.ts"
import type { ApiObject } from "../../kube/resource.ts"
import type { Change } from "../../kube/store.ts"
import { Controller, type ReconcileContext, type ReconcileResult, watches } from "../../runtime/controller.ts"
import { addFinalizer, create, dropFinalizer, remove, writeStatus } from "../writes.ts"
import { type ApiKeyAction, decide } from "./decide.ts"
import { type ApiKeyControllerOptions, keysNamedBy, writersOf } from "./dependencies.ts"
import { gather, leftoversOf } from "./gather.ts"

/** Makes the controller that gives each ApiKey its machine user, bound to its role, and takes both away again. */
export function createApiKeyController(options: ApiKeyControllerOptions): Controller {
  const { apiKeys, users, bindings, clock, logger } = options
  return new Controller({
    name: "apikey",
    reconcile: (key, context) => reconcile(key, options, context),
    sources: [watches(apiKeys), watches(users, keysOf), watches(bindings, keysOf)],
    clock,
    logger,
  })
}

function keysOf({ old, current }: Change<ApiObject>): string[] {
  return [...new Set([old, current].flatMap((object) => (object === undefined ? [] : keysNamedBy(object))))]
}

async function reconcile(
  name: string,
  options: ApiKeyControllerOptions,
  context: ReconcileContext,
): Promise<ReconcileResult> {
  const key = options.apiKeys.store.getByKey(name)
  await clearLeftovers(name, key, options, context)
  if (key === undefined) return {}
  const decision = decide(key, await gather(key, options), options.clock.now())
  let current = key
  if (decision.status !== undefined) {
    current = await writeStatus(key, decision.status, writersOf(options).keys, context)
    tellOfChange(key, current, options)
  }
  for (const action of decision.actions) {
    context.signal.throwIfAborted()
    await act(current, action, options, context)
  }
  return decision.requeueAfter === undefined ? {} : { requeueAfter: decision.requeueAfter }
}

async function act(
  key: StoredApiKey,
  action: ApiKeyAction,
  options: ApiKeyControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const { keys, users, bindings } = writersOf(options)
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

/** An ApiKey that was deleted while its finalizer was taken away by force leaves its machine user behind. */
async function clearLeftovers(
  name: string,
  key: StoredApiKey | undefined,
  options: ApiKeyControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const leftovers = await leftoversOf(name, key, options)
  const { users, bindings } = writersOf(options)
  for (const binding of leftovers.bindings) await remove(binding, bindings, context)
  for (const user of leftovers.users) await remove(user, users, context)
}

function tellOfChange(before: StoredApiKey, after: StoredApiKey, { recorder }: ApiKeyControllerOptions): void {
  const was = findCondition(before.status?.conditions, ApiKeyCondition.Ready)
  const is = findCondition(after.status?.conditions, ApiKeyCondition.Ready)
  if (is === undefined || is.reason === was?.reason) return
  const type = is.reason === "NameTaken" ? "Warning" : "Normal"
  recorder.record(after, { type, reason: is.reason, message: is.message })
}
