import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, describe, it } from "vitest"
import { type Command, freePair, measureStart, startStack, stopAt } from "./stops.ts"

const MOMENTS = 50

/** How long after it is ready the latest SIGTERM comes, milliseconds. */
const LIFE_MS = 6_000

const isNightly = process.env["BERTH_NIGHTLY"] === "1"
const why = isNightly ? "" : " (skipped: it takes 20 minutes; BERTH_NIGHTLY=1 runs it)"

let folder: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-stops-"))
})
afterAll(() => rm(folder, { recursive: true, force: true, maxRetries: 3 }))

describe.skipIf(!isNightly)(`SIGTERM at ${MOMENTS} moments${why}`, { timeout: 3_600_000, concurrent: true }, () => {
  it.for<Command>(["start", "demo"])(
    "npm %s ends within ten seconds and leaves nothing",
    async (command, { expect }) => {
      const stack = { command, dataDir: join(folder, command), port: await freePair() }
      const span = (await measureStart(stack)) + LIFE_MS
      const seconds: string[] = []
      const failures: unknown[] = []
      for (let moment = 0; moment < MOMENTS; moment++) {
        const at = Math.round((moment * span) / (MOMENTS - 1))
        const remains = await stopAt(stack, at)
        if (remains.seconds === undefined) failures.push({ at, ...remains })
        seconds.push(`${at}:${remains.seconds?.toFixed(1)}`)
      }
      console.log(`npm ${command}: SIGTERM after milliseconds : seconds until the end\n${seconds.join(" ")}`)
      expect(failures).toEqual([])
      const next = startStack(stack)
      await next.printed(/ready after/)
      await next.stop()
    },
  )
})
