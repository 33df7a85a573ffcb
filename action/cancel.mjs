// Runs after the steps of a cancelled workflow. A runner gives a step some seconds to end: this cancels its job for sure.

import { run, wordsOf } from "./berth.mjs"

const { STATE_berth: berth, STATE_job: job } = process.env
if (berth && job) {
  const ended = await run([berth, "cancel", job, "--yes"])
  // 5: the job has ended already.
  if (![0, 5].includes(ended.code)) {
    process.stdout.write(`::error title=Berth::The job may run on: ${wordsOf(ended).replaceAll("\n", " ")}\n`)
    process.exitCode = 1
  }
}
