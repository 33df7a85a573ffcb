import { defined } from "../../core/apis/defined.ts"
import { isOver, type StoredLaunch } from "../../core/apis/launch.ts"
import { API_VERSION } from "../../core/apis/meta.ts"
import { STATEMENT, type StoredStatement, statementName } from "../../core/apis/statement.ts"
import type { Change } from "../../core/kube/store.ts"
import { STATEMENTS } from "../../core/resources.ts"
import { Controller, type ReconcileContext, type ReconcileResult, watchSource } from "../../core/runtime/controller.ts"
import { remove, replaceStatus } from "../writes.ts"
import { decide, type StatementAction } from "./decide.ts"
import type { StatementControllerDependencies } from "./dependencies.ts"
import { STATEMENT_DEFAULTS, type StatementSettings } from "./settings.ts"
import { TermStart } from "./term.ts"

/** Owner of the fields that the statement controller writes. */
const FIELD_MANAGER = "berth-statement-controller"

/** Delay before an old cache is looked at again, seconds. */
const AGAIN_SECONDS = 1

/** Creates the controller that adds the costs of ended VMs to the Statements. Its keys are namespaces of projects. */
export function createStatementController(options: StatementControllerDependencies): Controller {
  const { client, statements, launches, systemNamespace, clock, logger } = options
  const termStart = new TermStart()
  const reconciler = new StatementReconciler(options, termStart)
  return new Controller({
    name: "statement",
    reconcile: (namespace, context) => reconciler.reconcile(namespace, context),
    sources: [
      watchSource(launches, endedIn),
      watchSource(statements, ({ old, current }) => [(current ?? old)?.spec.namespace ?? ""]),
      termStart.source(client, systemNamespace),
    ],
    logger,
    clock,
  })
}

/** Returns the namespace of an ended Launch. */
function endedIn({ current }: Change<StoredLaunch>): string[] {
  return current !== undefined && isOver(current) ? [current.spec.job.namespace] : []
}

class StatementReconciler {
  readonly #options: StatementControllerDependencies
  readonly #settings: StatementSettings
  readonly #termStart: TermStart
  /** Times of the last writes by namespace, on the monotonic clock. */
  readonly #written = new Map<string, number>()

  constructor(options: StatementControllerDependencies, termStart: TermStart) {
    this.#options = options
    this.#settings = { ...STATEMENT_DEFAULTS, ...options.settings }
    this.#termStart = termStart
  }

  async reconcile(namespace: string, context: ReconcileContext): Promise<ReconcileResult> {
    const { statements, launches, clock } = this.#options
    if (!this.#termStart.isShownBy(launches.store)) return { requeueAfter: AGAIN_SECONDS }
    const writtenAt = this.#written.get(namespace)
    const observed = {
      statements: new Map(statements.store.byIndex("project", namespace).map((each) => [each.spec.month, each])),
      launches: () => launches.store.byIndex("unmarked", namespace),
      ...(writtenAt !== undefined && { writtenSecondsAgo: clock.monotonic() - writtenAt }),
    }
    const { actions, requeueAfter } = decide(observed, clock.now(), this.#settings)
    for (const action of actions) {
      context.signal.throwIfAborted()
      this.#options.fence()
      await this.#act(namespace, action, context)
      this.#written.set(namespace, clock.monotonic())
    }
    return requeueAfter === undefined ? {} : { requeueAfter }
  }

  async #act(namespace: string, action: StatementAction, context: ReconcileContext): Promise<void> {
    const writer = statementWriter(this.#options)
    switch (action.do) {
      case "create": {
        const created = await this.#create(namespace, action)
        this.#options.fence()
        await replaceStatus(created, action.status, writer, context)
        return
      }
      case "writeStatus":
        await replaceStatus(action.statement, action.status, writer, context)
        return
      case "delete":
        await remove(action.statement, writer, context)
        return
    }
  }

  #create(namespace: string, { month, organization }: StatementAction & { do: "create" }): Promise<StoredStatement> {
    const statement = {
      apiVersion: API_VERSION,
      kind: STATEMENT.kind,
      metadata: { name: statementName(namespace, month), namespace: this.#options.systemNamespace },
      spec: { namespace, month, ...defined({ organization }) },
    }
    return this.#options.client.create(STATEMENTS, statement as StoredStatement, { fieldManager: FIELD_MANAGER })
  }
}

function statementWriter({ client, statements }: StatementControllerDependencies) {
  return { client, resource: STATEMENTS, store: statements.store, fieldManager: FIELD_MANAGER }
}
