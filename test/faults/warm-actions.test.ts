import { expect, test } from "vitest"
import type { AgentStatus, StoredLaunch } from "../../src/core/apis/launch.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { isConflict } from "../../src/core/kube/errors.ts"
import { LAUNCHES } from "../../src/core/resources.ts"
import type { ReconcileContext } from "../../src/core/runtime/controller.ts"
import { takeOver, writeOwnStatus } from "../../src/operator/launch/actions.ts"
import { CloudCalls } from "../../src/operator/launch/create.ts"
import type { LaunchControllerDependencies } from "../../src/operator/launch/dependencies.ts"
import { controllerHarnesses } from "../harness/controllers.ts"
import { partsOf } from "./model-parts.ts"
import { LAUNCH_VERSIONS } from "./model-state.ts"
import { warmModel } from "./warm.ts"
import { OPERATOR_RULES, WarmOperator } from "./warm-operator.ts"
import { clockAt, objectAt, put, type World, withLaunch } from "./warm-state.ts"

// The model of takeovers writes objects by its own code, too. Here each of its writes is compared with the action of the
// controller, on the API server. Launch 2 takes over the idle VM of Launch 1.

const newHarness = controllerHarnesses()
const context = { wrote: () => undefined, deleted: () => undefined } as unknown as ReconcileContext

/** Returns a world in which Launch 2 is about to take over the VM, and the same on the API server. */
async function bothWorlds() {
  const { client, namespace, clock } = await newHarness()
  let world = warmModel({ from: "request", jobs: 0, faults: 0, ticks: 0 }).initial
  for (const number of [1, 2]) {
    const { metadata, spec, status = {} } = objectAt(world, number) as StoredLaunch
    const { name, labels, finalizers } = metadata
    const own = { metadata: { name, namespace, labels, finalizers }, spec }
    const made = await client.create(LAUNCHES, own as unknown as StoredLaunch)
    const on = LAUNCH_VERSIONS.of(await client.patchStatus(LAUNCHES, made.metadata, { merge: { status } }))
    world = withLaunch(world, number, { object: on, cached: on, dirty: number === 2 })
  }
  const now = clockAt(world.tick)
  const read = (number: number) => client.get(LAUNCHES, (objectAt(world, number) as StoredLaunch).metadata)

  /** Returns the controller's options. `meanwhile` happens between its read and its write. */
  const optionsOf = (meanwhile: () => Promise<unknown>): LaunchControllerDependencies => {
    const get: KubeClient["get"] = async (resource, ref) => {
      const found = await client.get(resource, ref)
      await meanwhile()
      return found
    }
    const options = {
      client: { get, patchStatus: client.patchStatus.bind(client) },
      clock: { now: () => now, monotonic: () => clock.monotonic() },
      ...{ systemNamespace: namespace, launches: { store: {} }, fence: () => undefined },
    }
    return options as unknown as LaunchControllerDependencies
  }

  return {
    world,
    /** Looks at Launch 1, and binds it if that is possible. */
    takeOver: async (meanwhile: () => Promise<unknown> = () => Promise.resolve()) => {
      const options = optionsOf(meanwhile)
      return await takeOver(await read(2), { options, calls: new CloudCalls(options.clock) }, context)
    },
    /** Writes what became of the takeover. */
    write: async (own: StoredLaunch["status"]) =>
      await writeOwnStatus(
        await read(2),
        own ?? {},
        optionsOf(() => Promise.resolve()),
        context,
      ),
    /** Writes the agent's part of Launch 1, like the gateway. */
    tell: async (agent: AgentStatus) =>
      await client.patchStatus(LAUNCHES, (await read(1)).metadata, { merge: { status: { agent } } }),
    version: async (number: number) => (await read(number)).metadata.resourceVersion,
    /** Expects the same in both worlds. */
    expectEqual: async (model: World) => {
      for (const number of [1, 2]) expect(partsOf(await read(number))).toEqual(partsOf(objectAt(model, number)))
    },
  }
}

const operator = new WarmOperator(OPERATOR_RULES)

/** Takes the operator's step whose name has these words. */
function stepOf(world: World, words: string): World {
  const steps = [...operator.steps(world)]
  const step = steps.find(({ name }) => name.includes(words))
  if (step === undefined) throw new Error(`the model has only: ${steps.map(({ name }) => name).join("; ")}`)
  return step.next
}

/** Writes the agent's part of Launch 1 in the model. */
function told(world: World, agent: AgentStatus): World {
  const launch = objectAt(world, 1) as StoredLaunch
  return put(world, 1, { ...launch, status: { ...launch.status, agent } }).world
}

function agentOf(world: World): AgentStatus {
  return objectAt(world, 1)?.status?.agent as AgentStatus
}

test("a takeover binds the predecessor, then records the VM", async () => {
  const { world, takeOver, write, expectEqual } = await bothWorlds()
  const bound = stepOf(stepOf(world, "its takeover is possible"), "hands over its VM: done")
  const step = await takeOver()
  await expectEqual(bound)
  if (step.is !== "done") throw new Error(`the takeover is ${step.is}`)
  await write(step.own)
  await expectEqual(stepOf(bound, "what became of its takeover: done"))
})

test("a new leader records the VM of a takeover that an earlier one has bound, and binds nothing again", async () => {
  const { world, takeOver, write, version, expectEqual } = await bothWorlds()
  const bound = stepOf(stepOf(world, "its takeover is possible"), "hands over its VM: done")
  await takeOver()
  const before = await version(1)
  const inherited = withLaunch(bound, 2, { work: undefined, dirty: true, inherited: true, unanswered: false })
  const looked = stepOf(inherited, "its takeover is done")
  const step = await takeOver()
  if (step.is !== "done") throw new Error(`the takeover is ${step.is}`)
  await write(step.own)
  expect(await version(1)).toBe(before)
  await expectEqual(stepOf(looked, "what became of its takeover: done"))
})

test("a takeover writes nothing if its predecessor changes after the read", async () => {
  const { world, takeOver, tell, expectEqual } = await bothWorlds()
  const agent = { ...agentOf(world), sequence: agentOf(world).sequence + 1 }
  const changed = told(stepOf(world, "its takeover is possible"), agent)
  expect(isConflict(await takeOver(() => tell(agent)).catch((error: unknown) => error))).toBe(true)
  await expectEqual(stepOf(changed, "hands over its VM: again"))
})

test("a takeover of a VM that has left is lost, and its predecessor stays as it is", async () => {
  const { world, takeOver, write, tell, expectEqual } = await bothWorlds()
  const agent = { ...agentOf(world), leaveTime: clockAt(world.tick).toISOString() }
  await tell(agent)
  const lost = stepOf(told(world, agent), "its takeover is lost")
  const step = await takeOver()
  if (step.is !== "lost") throw new Error(`the takeover is ${step.is}`)
  await write(step.own)
  await expectEqual(stepOf(lost, "what became of its takeover: done"))
})
