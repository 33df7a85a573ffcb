import { join, relative } from "node:path"
import { describe, expect, it } from "vitest"
import { folder, inShell, prepareStacks, SUBMITTED_LOG, start } from "./stack.ts"
import { processesNaming } from "./traces.ts"

prepareStacks()

describe("everything on one machine", { timeout: 300_000 }, () => {
  it("demo: prints each job's end in plain lines, exits with 0 and leaves no process", async () => {
    const dataDir = join(folder, "demo")
    const demo = start("demo", dataDir)
    const ending = await demo.ended
    expect(ending, demo.output).toEqual({ code: 0, signal: null })
    expect(demo.output).not.toContain("\u001b")
    for (const end of [
      "hello: succeeded, as expected",
      "primes: succeeded, as expected",
      "retries: failed, as expected",
      "timeout: failed, as expected",
      "cancelled: cancelled, as expected",
      "submitted: succeeded, as expected",
      "6 of 6 jobs ended as expected",
    ]) {
      expect(demo.output).toContain(end)
    }
    expect(demo.output.match(/^JOB +PHASE/gm)).toHaveLength(1)
    expect(await processesNaming(dataDir)).toEqual([])

    // Runs the command that the demo's last lines print.
    expect(demo.output).toContain(`npm start -- --data-dir ${relative(process.cwd(), dataDir)}`)
    const again = start("serve", dataDir, ["--port", "0"])
    try {
      await again.printed(/Berth is up at/, 120)
      const env = join(dataDir, "env")
      expect(await inShell(env, "kubectl describe bj hello")).toContain(
        "cheapest of 4 matching offers on local, out of ",
      )
      expect(await inShell(env, "api GET /1/jobs/submitted/logs")).toBe(SUBMITTED_LOG)
    } finally {
      await again.stop("SIGINT")
    }
  })
})
