import type { Clock } from "../apis/clock.ts"
import type { EventNote, EventRecorder } from "../kube/events.ts"
import type { ApiObject } from "../kube/resource.ts"
import type { Store } from "../kube/store.ts"
import type { ReconcileContext, ReconcileResult } from "./controller.ts"

/** Result of a decision on an object and the facts about it. */
export interface Decision<S, A> {
  /** The status to write before the actions; absent: unchanged. */
  status?: S
  /** Actions in order. Each one requires those before it. */
  actions: readonly A[]
  events?: readonly EventNote[]
  /** Delay after which time alone changes the decision, seconds. */
  requeueAfter?: number
}

/** The parts of one kind's reconcile. `gather` reads, `decide` is pure, `writeStatus` and `act` write. */
export interface ObjectReconciler<T extends ApiObject, O, S, A> {
  store: Pick<Store<T>, "getByKey">
  clock: Pick<Clock, "now">
  recorder: Pick<EventRecorder, "record">
  gather(object: T): O | Promise<O>
  decide(object: T, observed: O, now: Date): Decision<S, A>
  writeStatus(object: T, status: S, context: ReconcileContext): Promise<T>
  /** Carries out one action. It may return an earlier requeue than the decision's. */
  // biome-ignore lint/suspicious/noConfusingVoidType: most actions ask for nothing
  act(object: T, action: A, context: ReconcileContext): Promise<ReconcileResult | void>
}

/**
 * Reconciles one object: gathers, decides, writes the status, emits the events, acts. An object that the cache does not
 * have is left alone.
 *
 * With a status, events come right after its write. A retry after a failed action then finds that status and decides no
 * events. Without a status they come last: a retry would emit them a second time.
 */
export async function reconcileObject<T extends ApiObject, O, S, A>(
  key: string,
  { store, clock, recorder, gather, decide, writeStatus, act }: ObjectReconciler<T, O, S, A>,
  context: ReconcileContext,
): Promise<ReconcileResult> {
  const object = store.getByKey(key)
  if (object === undefined) return {}
  const { status, actions, events = [], requeueAfter } = decide(object, await gather(object), clock.now())
  const current = status === undefined ? object : await writeStatus(object, status, context)
  const emitEvents = (): void => {
    for (const note of events) recorder.record(current, note)
  }
  if (status !== undefined) emitEvents()
  const delays = [requeueAfter]
  for (const action of actions) {
    context.signal.throwIfAborted()
    const result = await act(current, action, context)
    delays.push(result?.requeueAfter)
  }
  if (status === undefined) emitEvents()
  const wanted = delays.filter((seconds) => seconds !== undefined)
  return wanted.length === 0 ? {} : { requeueAfter: Math.min(...wanted) }
}
