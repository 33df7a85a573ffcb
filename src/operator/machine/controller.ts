import { timestamp } from "../../core/apis/clock.ts"
import { defined } from "../../core/apis/defined.ts"
import { isOver } from "../../core/apis/launch.ts"
import {
  MACHINE_FINALIZER,
  type MachineLaunch,
  type MachineStatus,
  type StoredMachine,
} from "../../core/apis/machine.ts"
import { keyOf } from "../../core/apis/meta.ts"
import { projectScope } from "../../core/identity/projects.ts"
import { limitForExisting } from "../../core/quota/project-limits.ts"
import { MACHINES } from "../../core/resources.ts"
import { Controller, type ReconcileContext, watchSource } from "../../core/runtime/controller.ts"
import { type ObjectReconciler, reconcileObject } from "../../core/runtime/reconcile-object.ts"
import { addFinalizer, dropFinalizer, type Writer, writeStatus } from "../writes.ts"
import { decide, type MachineAction, type MachineObservation } from "./decide.ts"
import type { MachineControllerDependencies } from "./dependencies.ts"
import { HeardHosts } from "./heard.ts"

const FIELD_MANAGER = "berth-machine-controller"

/** Creates the controller that says if machines take jobs, and holds deleted ones until nothing runs on them. */
export function createMachineController(options: MachineControllerDependencies): Controller {
  const { client, machines, projects, clock, recorder, logger } = options
  const { store } = machines
  const writer: Writer<StoredMachine> = { client, resource: MACHINES, store, fieldManager: FIELD_MANAGER }
  const heard = new HeardHosts(clock)
  const reconciler: ObjectReconciler<StoredMachine, MachineObservation, MachineStatus, MachineAction> = {
    store,
    clock,
    recorder,
    gather: (machine) => ({ ...gather(machine, options), ...defined({ silentSeconds: heard.silence(machine) }) }),
    decide,
    writeStatus: (machine, { observedGeneration, conditions }, context) =>
      writeStatus(machine, { observedGeneration, conditions } as MachineStatus, writer, context),
    act: async (machine, action, context) => await act(machine, action, { writer, clock, context }),
  }
  return new Controller({
    name: "machine",
    reconcile: (key, context) => reconcileObject(key, reconciler, context),
    sources: [
      watchSource(machines, ({ old, current }) => {
        if (current === undefined && old !== undefined) heard.forget(old.metadata.uid)
        return current === undefined ? [] : [keyOf(current)]
      }),
      watchSource(projects, () => store.list().map(keyOf)),
    ],
    logger,
    clock,
  })
}

function gather(machine: StoredMachine, options: MachineControllerDependencies): MachineObservation {
  const { machines, projects, launches, quota, systemNamespace } = options
  const { namespace } = machine.metadata
  const overLimit = limitForExisting(quota, "machines", machine, machines.store)
  const { launch } = machine.status ?? {}
  const names = [launch, ...(launch?.previous ?? [])].flatMap((each) => each?.name ?? [])
  const had = names.flatMap((name) => launches.store.get({ namespace: systemNamespace, name }) ?? [])
  return {
    hasProject: projects.store.list().some((project) => projectScope(project)?.namespace === namespace),
    areLaunchesOver: had.every(isOver),
    ...defined({ overLimit }),
  }
}

async function act(
  machine: StoredMachine,
  action: MachineAction,
  {
    writer,
    clock,
    context,
  }: { writer: Writer<StoredMachine>; clock: MachineControllerDependencies["clock"]; context: ReconcileContext },
): Promise<void> {
  const noteLaunch = async (change: Partial<MachineLaunch>): Promise<void> => {
    const launch = machine.status?.launch
    if (launch !== undefined) await writeStatus(machine, { launch: { ...launch, ...change } }, writer, context)
  }
  switch (action.do) {
    case "addFinalizer":
      return addFinalizer(machine, MACHINE_FINALIZER, writer, context)
    case "end":
      return noteLaunch({ endTime: timestamp(clock.now()) })
    case "lose":
      return noteLaunch({ lostTime: timestamp(clock.now()) })
    case "dropFinalizer":
      return dropFinalizer(machine, MACHINE_FINALIZER, writer, context)
  }
}
