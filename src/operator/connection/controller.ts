import { SECRET_INDEX } from "../../accounts/caches.ts"
import type { ConnectionStatus, StoredConnection } from "../../core/apis/connection.ts"
import { defined } from "../../core/apis/defined.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { keyOf } from "../../core/apis/meta.ts"
import type { StoredProject } from "../../core/apis/project.ts"
import { toVmSettings } from "../../core/apis/vm-settings.ts"
import { NAMESPACE_INDEX } from "../../core/identity/catch-up.ts"
import { projectScope } from "../../core/identity/projects.ts"
import type { Change, Store } from "../../core/kube/store.ts"
import {
  Controller,
  type ReconcileContext,
  type ReconcileResult,
  type Source,
  watchSource,
} from "../../core/runtime/controller.ts"
import { type ObjectReconciler, reconcileObject } from "../../core/runtime/reconcile-object.ts"
import { reseal, verify, writeOwnStatus } from "./actions.ts"
import { changesCooldown } from "./cooldown.ts"
import { type ConnectionAction, decide } from "./decide.ts"
import type { ConnectionControllerDependencies } from "./dependencies.ts"
import { type Attempt, type ConnectionObservation, gather } from "./gather.ts"
import type { PriceStates } from "./prices.ts"
import { CONNECTION_DEFAULTS } from "./settings.ts"

/**
 * Creates the controller that verifies the credentials of each Connection with its provider periodically. It also keeps
 * them sealed under the primary key.
 */
export function createConnectionController(options: ConnectionControllerDependencies): Controller {
  const { connections, clock, recorder, logger, workers = 8 } = options
  const settings = { ...CONNECTION_DEFAULTS, ...options.settings }
  /** By key. */
  const attempts = new Map<string, Attempt>()
  const reconciler: ObjectReconciler<StoredConnection, ConnectionObservation, ConnectionStatus, ConnectionAction> = {
    store: connections.store,
    clock,
    recorder,
    gather: (connection) => gather(connection, options, attempts.get(keyOf(connection))),
    decide: (connection, observed, now) => decide(connection, observed, now, settings),
    writeStatus: (connection, status, context) => writeOwnStatus(connection, status, options, context),
    act: (connection, action, context) =>
      act(connection, action, { options, attempts, seconds: settings.verifySeconds }, context),
  }
  return new Controller({
    name: "connection",
    reconcile: (key, context) => {
      if (connections.store.getByKey(key) === undefined) attempts.delete(key)
      return reconcileObject(key, reconciler, context)
    },
    sources: createSources(options),
    logger,
    clock,
    workers,
  })
}

function createSources(options: ConnectionControllerDependencies): Source[] {
  const { connections, secrets, sealingKeys, projects, launches, prices } = options
  const { store } = connections
  const keysIn = (namespace: string): string[] => store.byIndex(NAMESPACE_INDEX, namespace).map(keyOf)
  return [
    watchSource(connections),
    watchSource(secrets, ({ key }) => store.byIndex(SECRET_INDEX, key).map(keyOf)),
    watchSource(sealingKeys, () => store.list().map(keyOf)),
    watchSource(projects, (change) => changedNamespaces(change).flatMap(keysIn)),
    watchSource(launches, (change) => keysOfLaunch(change, store)),
    ...(prices === undefined ? [] : [changesOfPrices(prices, store)]),
  ]
}

/** Returns the source of the Connections whose condition `Prices` may have changed. */
function changesOfPrices(prices: PriceStates, store: Store<StoredConnection>): Source {
  return {
    subscribe: (add) =>
      prices.onChange((cloud) => {
        for (const one of store.list()) if (cloud === undefined || one.spec.type === cloud) add(keyOf(one))
      }),
    // Prices may come later than everything else: no connection waits for them.
    whenSynced: () => Promise.resolve(),
  }
}

function changedNamespaces({ old, current }: Change<StoredProject>): string[] {
  const namespaces = [old, current].map((project) =>
    project === undefined ? undefined : projectScope(project)?.namespace,
  )
  return namespaces[0] === namespaces[1] ? [] : namespaces.filter((namespace) => namespace !== undefined)
}

/** Returns the Connection of a Launch in a new region, or of one that begins or ends its cooldown. */
function keysOfLaunch({ old, current }: Change<StoredLaunch>, connections: Store<StoredConnection>): string[] {
  if (current?.spec.connection === undefined) return []
  const { job, connection, offer } = current.spec
  const key = `${job.namespace}/${connection}`
  const isKnown = old !== undefined || connections.getByKey(key)?.status?.regions?.includes(offer.region) === true
  return !isKnown || changesCooldown(old, current, connections.getByKey(key)) ? [key] : []
}

interface Parts {
  options: ConnectionControllerDependencies
  attempts: Map<string, Attempt>
  /** Timeout of a verification, seconds. */
  seconds: number
}

async function act(
  connection: StoredConnection,
  action: ConnectionAction,
  { options, attempts, seconds }: Parts,
  context: ReconcileContext,
): Promise<ReconcileResult | undefined> {
  switch (action.do) {
    case "reseal":
      await reseal(connection, action.project, options, context)
      return
    case "verify": {
      const { fields, version } = action.credentials
      const { type } = connection.spec
      const { regions } = action
      const settings = toVmSettings(connection.spec)
      const outcome = await verify({ type, fields, regions, settings, seconds, signal: context.signal }, options)
      const key = keyOf(connection)
      const before = attempts.get(key)
      const isSame = before?.version === version && before.outcome.is === outcome.is
      const { refusedTime, request } = action
      // Users who ask do not prolong the pauses of the verifications by Berth itself.
      const further = request === undefined ? 1 : 0
      attempts.set(key, {
        ...{ version, settings, time: options.clock.now(), outcome, count: isSame ? before.count + further : 1 },
        ...defined({ refusedTime, request }),
      })
      // The next reconcile writes the outcome into the status.
      return { requeueAfter: 0 }
    }
  }
}
