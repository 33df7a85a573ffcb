import { runProcess } from "../src/process.ts"
import { type Invocation, readInvocation } from "./options.ts"

const invocation = await readInvocation(process.argv)
await runProcess({ command: invocation.command }, (stopSignal) => run(invocation, stopSignal))

/** The imports take long. A signal during them ends the process by its default action: nothing has started yet. */
async function run({ command, options }: Invocation, stopSignal: () => AbortSignal): Promise<number> {
  if (command === "demo") {
    const { runDemo } = await import("./demo.ts")
    return runDemo(options, stopSignal())
  }
  const { runServe } = await import("./serve.ts")
  return runServe(options, stopSignal())
}
