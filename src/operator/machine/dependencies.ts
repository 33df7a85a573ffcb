import type { Clock } from "../../core/apis/clock.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { StoredMachine } from "../../core/apis/machine.ts"
import type { StoredProject } from "../../core/apis/project.ts"
import type { EventRecorder } from "../../core/kube/events.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { Quota } from "../../core/quota/project-limits.ts"
import type { Writer } from "../writes.ts"

/** Dependencies of the machine controller. */
export interface MachineControllerDependencies {
  /** Limits of what projects may store, and their use. Absent: no limits. */
  quota?: Quota
  client: Writer<StoredMachine>["client"]
  machines: Reflector<StoredMachine>
  /** Has the index PROJECT_OF_NAMESPACE. */
  projects: Reflector<StoredProject>
  clock: Clock
  recorder: Pick<EventRecorder, "record">
  logger: Logger
}
