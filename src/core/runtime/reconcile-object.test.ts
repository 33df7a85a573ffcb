import { describe, expect, test } from "vitest"
import type { ApiObject } from "../kube/resource.ts"
import type { ReconcileContext } from "./controller.ts"
import { type Decision, type ObjectReconciler, reconcileObject } from "./reconcile-object.ts"

type Status = { phase: string }
type Action = "first" | "second"

const OBJECT = { metadata: { name: "one", namespace: "a" } } as ApiObject
const EVENT = { type: "Normal", reason: "Changed", message: "changed" } as const

/** Reconciles with a fixed decision. Returns the steps in their order. */
async function run(
  decision: Decision<Status, Action>,
  { act = () => undefined, signal = new AbortController().signal }: Partial<Behaviour> = {},
): Promise<{ steps: string[]; result?: unknown; error?: unknown }> {
  const steps: string[] = []
  const reconciler: ObjectReconciler<ApiObject, string, Status, Action> = {
    store: { getByKey: (key) => (key === "a/one" ? OBJECT : undefined) },
    clock: { now: () => new Date(0) },
    recorder: { record: (_, { reason }) => void steps.push(`event ${reason}`) },
    gather: () => "facts",
    decide: (_, observed) => {
      steps.push(`decide by ${observed}`)
      return decision
    },
    writeStatus: async (object, { phase }) => {
      steps.push(`status ${phase}`)
      return object
    },
    act: async (_, action) => {
      steps.push(action)
      return act(action)
    },
  }
  try {
    return { steps, result: await reconcileObject("a/one", reconciler, { signal } as ReconcileContext) }
  } catch (error) {
    return { steps, error }
  }
}

interface Behaviour {
  act: (action: Action) => { requeueAfter: number } | undefined
  signal: AbortSignal
}

const failing = (action: Action): undefined => {
  if (action === "first") throw new Error("unreachable")
}

describe("reconcileObject", () => {
  test("emits events right after the status, so that a failed action does not repeat them", async () => {
    const { steps, error } = await run(
      { status: { phase: "ready" }, actions: ["first", "second"], events: [EVENT] },
      { act: failing },
    )
    expect(steps).toEqual(["decide by facts", "status ready", "event Changed", "first"])
    expect(error).toEqual(new Error("unreachable"))
  })

  test("emits events after the actions if there is no status to write, and none if an action fails", async () => {
    const decision = { actions: ["first", "second"], events: [EVENT] } as const
    expect((await run(decision)).steps).toEqual(["decide by facts", "first", "second", "event Changed"])
    expect((await run(decision, { act: failing })).steps).toEqual(["decide by facts", "first"])
  })

  test("requeues after the shortest delay of the decision and its actions", async () => {
    const act = (action: Action) => (action === "second" ? { requeueAfter: 3 } : undefined)
    expect((await run({ actions: ["first", "second"], requeueAfter: 60 }, { act })).result).toEqual({ requeueAfter: 3 })
    expect((await run({ actions: ["first"], requeueAfter: 60 }, { act })).result).toEqual({ requeueAfter: 60 })
    expect((await run({ actions: ["first"] }, { act })).result).toEqual({})
  })

  test("takes no action after its controller was stopped", async () => {
    const { steps, error } = await run({ actions: ["first"] }, { signal: AbortSignal.abort(new Error("stopped")) })
    expect(steps).toEqual(["decide by facts"])
    expect(error).toEqual(new Error("stopped"))
  })
})
