import type { Command } from "commander"
import { SMOKE_DETAILS, SMOKE_SUMMARY, type SmokeFlags, smokeFlags } from "../../smoke/options.ts"
import { runSmoke } from "../../smoke/smoke.ts"
import type { Commands } from "../command.ts"
import { EXIT } from "../exit.ts"

/** `smoke`: tries a cloud account with small jobs. */
export function addSmokeCommand(commands: Commands, program: Command): void {
  commands.add<SmokeFlags>(program, {
    usage: "smoke",
    summary: SMOKE_SUMMARY,
    more: `${SMOKE_DETAILS}\nExit code 1: a job did not pass, or a VM may be left.`,
    examples: [
      ["berth smoke --cloud aws --region eu", "all jobs, in Europe"],
      ["berth smoke --cloud gcp --only cpu spot", "without a GPU"],
      ["berth smoke --cloud aws --only bucket --bucket my-bucket", "one job, which writes a file"],
    ],
    options: smokeFlags(),
    run: async (call) => {
      const { only: kinds, yes, ...options } = call.options
      const { terminal } = call
      // After Ctrl-C the jobs are cancelled, and their VMs are waited for.
      const client = call.client(call.chosen(), { endsAtInterrupt: false })
      const isPassed = await runSmoke(
        {
          ...options,
          kinds,
          version: call.version,
          send: (path, init) =>
            client.send(
              new Request(`${client.baseUrl}${path}`, { ...init, headers: { "content-type": "application/json" } }),
            ),
        },
        {
          progress: (line) => terminal.progress(line),
          report: (markdown) => terminal.write(markdown),
          confirm: (question) => (yes === true ? Promise.resolve(true) : terminal.confirm(question, "--yes", false)),
        },
        call.signal,
      )
      if (call.signal.aborted) return EXIT.interrupted
      return isPassed ? 0 : EXIT.failed
    },
  })
}
