import type { Finish } from "../apis/launch.ts"
import { LIMITS } from "../apis/limits.ts"
import type { Ended } from "./runtimes/runtime.ts"

/** Why the VM itself has to end: its lifetime is over, it is being shut down, or the gateway refuses its agent. */
export type LeaveCause = "expired" | "shutdown" | "refused"

/** Why a running container is ended: as the gateway wants it, because the job's timeout is over, or with its VM. */
export type StopCause = "stop" | "timeout" | "preempted" | LeaveCause

const STOPPED: Record<StopCause, Pick<Finish, "reason" | "message">> = {
  stop: { reason: "Stopped", message: "stopped as asked" },
  timeout: { reason: "DeadlineExceeded", message: "the job's timeout is over" },
  preempted: { reason: "Preempted", message: "the cloud takes the VM back" },
  expired: { reason: "DeadlineExceeded", message: "the VM's lifetime is over" },
  shutdown: { reason: "Stopped", message: "the VM was shut down" },
  refused: { reason: "Stopped", message: "the gateway refused this VM" },
}

/** The end of a run that was ended by us, or that never began because of that. */
export function stoppedFinish(cause: StopCause, time: string, ended?: Ended): Finish {
  return { ...STOPPED[cause], ...(ended !== undefined && { exitCode: ended.exitCode }), time }
}

/** The end of the run after an attempt that ended by itself; undefined when it is to be tried again. */
export function finishAfter(ended: Ended, retriesLeft: number, time: string): Finish | undefined {
  const { exitCode, message } = ended
  if (exitCode === 0) return { reason: "Succeeded", exitCode, time }
  if (retriesLeft > 0) return undefined
  const text = message === undefined ? `exit code ${exitCode}` : `exit code ${exitCode}: ${message}`
  return { reason: "ContainerFailed", exitCode, message: bounded(text), time }
}

/** A message cut to what the Launch's status holds. */
export function bounded(message: string): string {
  return message.length <= LIMITS.message ? message : `${message.slice(0, LIMITS.message - 1)}…`
}
