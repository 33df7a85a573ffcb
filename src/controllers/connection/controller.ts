import { findCondition } from "../../apis/conditions.ts"
import { ConnectionCondition, ConnectionReason, type StoredConnection } from "../../apis/connection.ts"
import type { StoredLaunch } from "../../apis/launch.ts"
import { keyOf } from "../../apis/meta.ts"
import type { StoredProject } from "../../apis/project.ts"
import { NAMESPACE_INDEX } from "../../identity/catch-up.ts"
import { scopeOf } from "../../identity/projects.ts"
import type { Change, Store } from "../../kube/store.ts"
import {
  Controller,
  type ReconcileContext,
  type ReconcileResult,
  type Source,
  watches,
} from "../../runtime/controller.ts"
import { reseal } from "./actions/reseal.ts"
import { verify } from "./actions/verify.ts"
import { writeStatus } from "./actions/write-status.ts"
import type { FoundCredentials } from "./credentials.ts"
import { type ConnectionDecision, decide } from "./decide.ts"
import { type ConnectionControllerOptions, SECRET_INDEX } from "./dependencies.ts"
import { gather, isCredentialsRefusal } from "./gather.ts"
import type { Attempt, ConnectionObservation } from "./observation.ts"
import { CONNECTION_DEFAULTS, type ConnectionSettings } from "./settings.ts"

/**
 * Makes the controller that keeps asking providers whether they take the credentials of each Connection, and keeps these
 * sealed under the present key.
 */
export function createConnectionController(options: ConnectionControllerOptions): Controller {
  const reconciler = new ConnectionReconciler(options)
  return new Controller({
    name: "connection",
    reconcile: (key, context) => reconciler.reconcile(key, context),
    sources: sourcesOf(options),
    logger: options.logger,
    clock: options.clock,
    workers: options.workers ?? 8,
  })
}

function sourcesOf({ connections, secrets, sealingKeys, projects, launches }: ConnectionControllerOptions): Source[] {
  const { store } = connections
  const keysIn = (namespace: string): string[] => store.byIndex(NAMESPACE_INDEX, namespace).map(keyOf)
  return [
    watches(connections),
    watches(secrets, ({ key }) => store.byIndex(SECRET_INDEX, key).map(keyOf)),
    watches(sealingKeys, () => store.list().map(keyOf)),
    watches(projects, (change) => changedNamespaces(change).flatMap(keysIn)),
    watches(launches, (change) => connectionOf(change, store)),
  ]
}

function changedNamespaces({ old, current }: Change<StoredProject>): string[] {
  const namespaces = [old, current].map((project) => (project === undefined ? undefined : scopeOf(project)?.namespace))
  return namespaces[0] === namespaces[1] ? [] : namespaces.filter((namespace) => namespace !== undefined)
}

/** A Launch may be in a region that is new, and one that was refused for its credentials says that they need a look. */
function connectionOf({ old, current }: Change<StoredLaunch>, connections: Store<StoredConnection>): string[] {
  if (current?.spec.connection === undefined) return []
  const { job, connection, offer } = current.spec
  const key = `${job.namespace}/${connection}`
  const isKnown = old !== undefined || connections.getByKey(key)?.status?.regions?.includes(offer.region) === true
  const isRefusal = isCredentialsRefusal(current) && (old === undefined || !isCredentialsRefusal(old))
  return isRefusal || !isKnown ? [key] : []
}

class ConnectionReconciler {
  readonly #options: ConnectionControllerOptions
  readonly #settings: ConnectionSettings
  /** By key. */
  readonly #attempts = new Map<string, Attempt>()

  constructor(options: ConnectionControllerOptions) {
    this.#options = options
    this.#settings = { ...CONNECTION_DEFAULTS, ...options.settings }
  }

  async reconcile(key: string, context: ReconcileContext): Promise<ReconcileResult> {
    const connection = this.#options.connections.store.getByKey(key)
    if (connection === undefined) {
      this.#attempts.delete(key)
      return {}
    }
    const observed = await gather(connection, this.#options, this.#attempts.get(key))
    let current = connection
    let decision = await this.#decide(current, observed, context)
    current = decision.connection
    for (const action of decision.actions) {
      context.signal.throwIfAborted()
      if (action.do === "reseal") {
        await reseal(current, action.project, this.#options, context)
        // What was read is out of date now: the change brings this key again.
        return {}
      }
      const attempt = await this.#verify(current, action.credentials, { ...observed, signal: context.signal })
      decision = await this.#decide(current, { ...observed, attempt }, context)
    }
    return decision.requeueAfter === undefined ? {} : { requeueAfter: decision.requeueAfter }
  }

  /** Decides, and writes the status that is decided on. */
  async #decide(
    connection: StoredConnection,
    observed: ConnectionObservation,
    context: ReconcileContext,
  ): Promise<ConnectionDecision & { connection: StoredConnection }> {
    const decision = decide(connection, observed, this.#options.clock.now(), this.#settings)
    if (decision.status === undefined) return { ...decision, connection }
    const written = await writeStatus(connection, decision.status, this.#options, context)
    this.#tell(connection, written)
    return { ...decision, connection: written }
  }

  async #verify(
    { metadata, spec }: StoredConnection,
    { fields, version }: FoundCredentials,
    { signal, refusedTime }: { signal: AbortSignal; refusedTime?: string },
  ): Promise<Attempt> {
    const { clock } = this.#options
    const seconds = this.#settings.verifySeconds
    const outcome = await verify({ type: spec.type, fields, seconds, signal }, this.#options)
    const key = keyOf({ metadata })
    const before = this.#attempts.get(key)
    const isSame = before?.version === version && before.outcome.is === outcome.is
    const count = isSame ? before.count + 1 : 1
    const attempt = { version, time: clock.now(), outcome, count, ...(refusedTime !== undefined && { refusedTime }) }
    this.#attempts.set(key, attempt)
    return attempt
  }

  #tell(before: StoredConnection, after: StoredConnection): void {
    for (const type of [ConnectionCondition.Ready, ConnectionCondition.LaunchPermitted]) {
      const was = findCondition(before.status?.conditions, type)
      const is = findCondition(after.status?.conditions, type)
      if (is === undefined || is.reason === was?.reason || is.reason === ConnectionReason.Verifying) continue
      const { status, reason, message } = is
      this.#options.recorder.record(after, { type: status === "True" ? "Normal" : "Warning", reason, message })
    }
  }
}
