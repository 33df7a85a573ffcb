import type { BerthClient } from "../client/client.ts"
import type { Call } from "./command.ts"
import { toFailure } from "./exit.ts"

/** Longest time in which a command that was ended by a signal still cancels what it follows, seconds. */
export const CANCEL_SECONDS = 10

/** Option of commands that follow a job or an array. */
export interface LeaveFlags {
  cancelOnExit?: boolean
}

/** Job or array that a command follows. */
interface Followed {
  name: string
  /** Commands that follow and end it. */
  follow: string
  end: string
  /** Sends the request that cancels it. */
  cancel: (client: BerthClient, signal: AbortSignal) => Promise<unknown>
}

/**
 * Says what becomes of a job after a signal has ended the command: it runs on and costs money, or is cancelled by
 * `--cancel-on-exit`.
 */
export async function leave(call: Call<LeaveFlags>, { name, follow, end, cancel }: Followed): Promise<void> {
  const { terminal, options } = call
  if (options.cancelOnExit !== true) {
    terminal.warn(`\nDetached: ${name} runs on. ${follow} follows it; ${end} ends it.`)
    return
  }
  try {
    await cancel(call.client(call.chosen(), { endsAtInterrupt: false }), AbortSignal.timeout(CANCEL_SECONDS * 1000))
    terminal.warn(`\nCancelled ${name}, as --cancel-on-exit says.`)
  } catch (error) {
    terminal.warn(`\n${name} was not cancelled, and may run on: ${toFailure(error).message} ${end} ends it.`)
  }
}
