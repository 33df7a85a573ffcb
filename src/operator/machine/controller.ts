import { timestamp } from "../../core/apis/clock.ts"
import { MACHINE_FINALIZER, type MachineStatus, type StoredMachine } from "../../core/apis/machine.ts"
import { keyOf } from "../../core/apis/meta.ts"
import { projectScope } from "../../core/identity/projects.ts"
import { MACHINES } from "../../core/resources.ts"
import { Controller, type ReconcileContext, watchSource } from "../../core/runtime/controller.ts"
import { type ObjectReconciler, reconcileObject } from "../../core/runtime/reconcile-object.ts"
import { addFinalizer, dropFinalizer, type Writer, writeStatus } from "../writes.ts"
import { decide, type MachineAction, type MachineObservation } from "./decide.ts"
import type { MachineControllerDependencies } from "./dependencies.ts"

const FIELD_MANAGER = "berth-machine-controller"

/** Creates the controller that says if machines take jobs, and holds deleted ones until nothing runs on them. */
export function createMachineController(options: MachineControllerDependencies): Controller {
  const { client, machines, projects, clock, recorder, logger } = options
  const { store } = machines
  const writer: Writer<StoredMachine> = { client, resource: MACHINES, store, fieldManager: FIELD_MANAGER }
  const reconciler: ObjectReconciler<StoredMachine, MachineObservation, MachineStatus, MachineAction> = {
    store,
    clock,
    recorder,
    gather: (machine) => gather(machine, options),
    decide,
    writeStatus: (machine, { observedGeneration, conditions }, context) =>
      writeStatus(machine, { observedGeneration, conditions } as MachineStatus, writer, context),
    act: async (machine, action, context) => await act(machine, action, { writer, clock, context }),
  }
  return new Controller({
    name: "machine",
    reconcile: (key, context) => reconcileObject(key, reconciler, context),
    sources: [watchSource(machines), watchSource(projects, () => store.list().map(keyOf))],
    logger,
    clock,
  })
}

function gather(machine: StoredMachine, { projects }: MachineControllerDependencies): MachineObservation {
  const { namespace } = machine.metadata
  const hasProject = projects.store.list().some((project) => projectScope(project)?.namespace === namespace)
  return { hasProject }
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
  switch (action.do) {
    case "addFinalizer":
      return addFinalizer(machine, MACHINE_FINALIZER, writer, context)
    case "end": {
      const launch = machine.status?.launch
      if (launch === undefined) return
      await writeStatus(machine, { launch: { ...launch, endTime: timestamp(clock.now()) } }, writer, context)
      return
    }
    case "dropFinalizer":
      return dropFinalizer(machine, MACHINE_FINALIZER, writer, context)
  }
}
