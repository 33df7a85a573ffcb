import { AsyncLocalStorage } from "node:async_hooks"

/**
 * Kinds of work at the API server. `background`: caches, controllers and all else that no request waits for.
 * `authentication`: the check of a caller. `agents`: messages of VMs. `requests`: what callers ask for.
 */
export const FLOW_KINDS = ["background", "authentication", "agents", "requests"] as const
export type FlowKind = (typeof FLOW_KINDS)[number]

/** Work that shares the permits of a client with other work, fairly on each level of its path. */
export interface Flow {
  readonly kind: FlowKind
  /** For whom it is, from the outermost: a person with all organizations, the project, the principal. */
  readonly path: readonly string[]
}

/** Flow of a request, with what it has read at the API server so far. */
export interface CountedFlow extends Flow {
  reads: number
  /** Waits for the flow's next turn of the processor. Absent: its work never waits. */
  nextTurn?: () => Promise<void>
}

const present = new AsyncLocalStorage<CountedFlow>()
const BACKGROUND: CountedFlow = { kind: "background", path: [], reads: 0 }

/** Runs a function, and all that it starts, for a flow. */
export function runIn<Result>(flow: CountedFlow, run: () => Result): Result {
  return present.run(flow, run)
}

/** Waits until the present code may go on, so that flows share the processor as they share the calls. */
export async function nextTurn(): Promise<void> {
  await presentFlow().nextTurn?.()
}

/** Returns the flow that the present code runs for. */
export function presentFlow(): CountedFlow {
  return present.getStore() ?? BACKGROUND
}
