import type { EventNote } from "../../core/kube/events.ts"
import type { SessionFacts } from "./lease.ts"

/** Events about the sessions of a job. They say who, how and how long, and nothing of the content. Pure. */

/** Numbers of a session that has ended. */
export interface SessionEnd {
  seconds: number
  reason: string
  /** Bytes from the person. */
  sent: number
  /** Bytes to the person. */
  received: number
}

/** Returns the event of a session's beginning. */
export function openedNote({ id, by, kind }: SessionFacts): EventNote {
  return { type: "Normal", reason: "SessionOpened", message: `${by} opened the session ${id} (${kindText(kind)}).` }
}

/** Returns the event of a session's end. */
export function endedNote({ id, by, kind }: SessionFacts, { seconds, reason, sent, received }: SessionEnd): EventNote {
  const message = `The session ${id} of ${by} (${kindText(kind)}) ended after ${seconds} s, with ${sent} bytes to the container and ${received} from it: ${reason}.`
  return { type: "Normal", reason: "SessionEnded", message }
}

/** Returns the kind of a session as people read it. */
export function kindText(kind: SessionFacts["kind"]): string {
  return kind === "exec" ? kind : `port ${kind}`
}
