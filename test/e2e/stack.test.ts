import { writeFile } from "node:fs/promises"
import { join, relative } from "node:path"
import { describe, expect, it } from "vitest"
import { processesNaming } from "../harness/traces.ts"
import { WebhookReceiver } from "../harness/webhook-receiver.ts"
import { folder, inShell, prepareStacks, SUBMITTED_LOG, start } from "./stack.ts"

prepareStacks()

/** Tries a webhook with a receiver on this machine. */
async function triesWebhook(env: string): Promise<void> {
  const receiver = await WebhookReceiver.start()
  try {
    const url = receiver.url.replace("127.0.0.1", "localhost")
    const file = join(folder, "webhook.yaml")
    await writeFile(file, JSON.stringify({ name: "here", url, events: ["job.*"] }))
    expect(await inShell(env, `api POST /1/webhooks ${file}`)).toMatch(/^201 /)
    await inShell(env, "kubectl wait --for=condition=Ready bhook/here --timeout=60s")
    expect(await inShell(env, "api POST /1/webhooks/here/test")).toMatch(/^200 .*"delivered":true/)
    expect(receiver.received).toHaveLength(1)
  } finally {
    await receiver.stop()
  }
}

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
      await triesWebhook(env)
    } finally {
      await again.stop("SIGINT")
    }
  })
})
