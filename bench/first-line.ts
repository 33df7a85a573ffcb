import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { freePort, isFree } from "../dev/controlplane/ports.ts"
import { keptApiKey } from "../dev/environment.ts"
import type { JobCreated } from "../src/facade/jobs/schema.ts"
import { startProgram } from "./program.ts"
import { type BenchContext, type Measured, spreadOf, within } from "./result.ts"

/** `npm start`, which has the local cloud. */
const MAIN = join(import.meta.dirname, "..", "dev", "main.ts")
const ROUNDS = 11
/** Goal of Berth's own: a wait that a person does not notice. */
const FIRST_LINE_MS = 1400
const PATIENCE_SECONDS = 60

/**
 * Measures the wait of a user of `npm start`: from POST to the first line that the container has written. The path
 * includes operator, an agent's process, the gateway and the log. Nothing is pulled: the command runs without its
 * image.
 */
export async function measureFirstLine({ report }: BenchContext): Promise<Measured> {
  const folder = await mkdtemp(join(tmpdir(), "berth-bench-"))
  const port = await portForTwo()
  const url = `http://127.0.0.1:${port}`
  const args = ["serve", "--data-dir", folder, "--port", String(port), "--runtime", "process"]
  const program = await startProgram({ name: "serve", script: MAIN, args, url, folder })
  try {
    const apiKey = await keyIn(join(folder, "env"))
    const times: number[] = []
    // The first one warms up.
    for (let round = 0; round <= ROUNDS; round++) {
      const milliseconds = await firstLine(url, apiKey)
      if (round > 0) times.push(milliseconds)
    }
    report(`POST to first line: ${spreadOf(times).join(" to ")} ms`)
    const what = "POST to the container's first line on the local cloud, ms"
    return { rows: [within(what, times, FIRST_LINE_MS)], spread: { [what]: spreadOf(times) } }
  } finally {
    await program.stop()
    await rm(folder, { recursive: true, force: true })
  }
}

/** Waits for the file: it is written just after the façade is ready. */
async function keyIn(environmentFile: string): Promise<string> {
  const signal = AbortSignal.timeout(PATIENCE_SECONDS * 1000)
  for (;;) {
    const key = await keptApiKey(environmentFile)
    if (key !== undefined) return key
    await delay(50, undefined, { signal })
  }
}

async function firstLine(url: string, apiKey: string): Promise<number> {
  const headers = { "content-type": "application/json", "x-service-api-key": apiKey }
  const body = JSON.stringify({ image: "busybox", command: ["echo", "first"] })
  const startedAt = performance.now()
  const answer = await fetch(`${url}/1/jobs`, { method: "POST", headers, body })
  if (answer.status !== 201) throw new Error(`POST /1/jobs: ${answer.status} ${await answer.text()}`)
  const { job_id: id } = (await answer.json()) as JobCreated
  const log = await fetch(`${url}/1/jobs/${id}/logs?follow=true`, { headers })
  let text = ""
  for await (const chunk of log.body ?? []) {
    text += Buffer.from(chunk).toString()
    if (text.includes("first\n")) return performance.now() - startedAt
  }
  throw new Error(`job ${id} wrote ${JSON.stringify(text)} and ended`)
}

/** Returns a free port. The next one is free, too: it is for the sign-in. */
async function portForTwo(): Promise<number> {
  for (;;) {
    const port = await freePort()
    if (await isFree(port + 1)) return port
  }
}
