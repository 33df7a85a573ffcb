import { type Command, Option } from "commander"
import { type JobRecord, readBody } from "../../client/client.ts"
import type { Call, Commands } from "../command.ts"
import { EXIT } from "../exit.ts"
import { runAttached } from "./attach.ts"
import { commandIn, type ExecFlags, exitCodeOf, NO_TTY, runInSession } from "./exec.ts"

interface DebugFlags extends ExecFlags {
  end?: true
}

/** `debug`: a shell in a copy of a failed container, or with tools beside a running one. */
export function addDebugCommand(commands: Commands, program: Command): void {
  commands.add<DebugFlags>(program, {
    usage: "debug <job> [command...]",
    summary: "Look into a failed job's kept machine, or beside a running container.",
    more:
      "A machine is kept after a failure of a job with --debug-keep. The command runs in a copy of the failed container:\n" +
      "its files as the failure left them, its environment, volumes and limits. The machine is billed until its time is over,\n" +
      "or berth debug --end. Beside a running container, the command is one of Berth's tools (busybox), also if the image has\n" +
      "no shell: it sees the container's processes and ports, and its files at /proc/1/root.",
    usageExit: EXIT.berth,
    examples: [
      ["berth debug train", "a shell in a copy of the failed container"],
      ["berth debug train --end", "ends the kept machine"],
    ],
    options: [NO_TTY, new Option("--end", "end the kept machine")],
    run: (call) => (call.options.end === true ? endKept(call) : runAttached(call, () => debug(call))),
  })
}

async function endKept(call: Call<DebugFlags>): Promise<undefined> {
  const { signal, terminal } = call
  const [id = ""] = call.args
  await call.client().api.DELETE("/jobs/{id}/debug", { params: { path: { id } }, signal })
  await terminal.line(`${id}: its kept machine is terminated`)
}

async function debug(call: Call<DebugFlags>): Promise<number> {
  const { signal, terminal } = call
  const asked = commandIn(call.args)
  const job = await readBody(call.client().api.GET("/jobs/{id}", { params: { path: { id: asked.job } }, signal }))
  terminal.progress(terminal.noted("dim", noteOn(job)))
  return exitCodeOf(await runInSession(call, { ...asked, toolbox: true }))
}

function noteOn({ kept_until: until, hourly_price_usd: hourlyUsd }: JobRecord): string {
  if (until == null) return "The tools are busybox. The container's files are at /proc/1/root."
  const price = hourlyUsd === null ? "" : `, at $${hourlyUsd} an hour`
  return `This is a copy of the failed container. Its machine is kept until ${until}${price}; --end ends it.`
}
