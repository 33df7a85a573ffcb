import type { Host, StoredMachine } from "../../core/apis/machine.ts"
import { GATEWAY_FIELD_MANAGER } from "../../core/apis/meta.ts"
import type { JsonPatchOperation, KubeClient } from "../../core/kube/client.ts"
import { ifFound } from "../../core/kube/errors.ts"
import { MACHINES } from "../../core/resources.ts"
import { AnsweredObjects, type Cached } from "./answered.ts"

/** Name of a machine, and the namespace of the project that owns it. */
export interface MachineRef {
  namespace: string
  name: string
}

/** Reads and writes Machines for the gateway. */
export interface Machines {
  /** Returns the Machine as it was last written, read or cached here. It may be stale. */
  get(ref: MachineRef): StoredMachine | undefined
  /** Returns the current Machine. */
  read(ref: MachineRef): Promise<StoredMachine | undefined>
  /**
   * Writes `status.host` as a whole, and nothing else. Rejects with a Conflict (core/kube/errors.ts) if the Machine has
   * changed since it was read: read it again and decide again.
   */
  writeHost(machine: StoredMachine, host: Host): Promise<StoredMachine>
  /** Resolves once the cache shows a later version of the Machine, or its deletion. Rejects with the signal's reason. */
  untilChanged(machine: StoredMachine, signal: AbortSignal): Promise<void>
}

/** Machines of this process' cache. */
export type CachedMachines = Cached<StoredMachine>

/** Returns the Machines of all projects, from the API server and a cache. */
export function kubeMachines(client: KubeClient, store: CachedMachines): Machines {
  const answered = new AnsweredObjects(store)
  return {
    get: (ref) => answered.get(ref),
    async read(ref) {
      const live = await ifFound(client.get(MACHINES, ref))
      return live && answered.keep(live)
    },
    async writeHost({ metadata, status }, host) {
      const json: JsonPatchOperation[] = [
        { op: "replace", path: "/metadata/resourceVersion", value: metadata.resourceVersion },
        // A merge would keep the fields that the host no longer has.
        status === undefined
          ? { op: "add", path: "/status", value: { host } }
          : { op: "add", path: "/status/host", value: host },
      ]
      const options = { fieldManager: GATEWAY_FIELD_MANAGER }
      return answered.keep(await client.patchStatus(MACHINES, metadata, { json }, options))
    },
    untilChanged: (machine, signal) => answered.untilChanged(machine, signal),
  }
}
