import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { buildImages, docker, missingForContainers } from "../agent/images.ts"
import { isNightly } from "../nightly.ts"
import { type Command, freePair, measureStart, type StackUnderTest, startStack, stopAt } from "./stops.ts"

const MOMENTS = 50

/** Delay of the latest SIGTERM after the program is ready, in milliseconds. */
const LIFE_MS = 6_000

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
      expect(await failedStops(stack)).toEqual([])
    },
  )
})

const noEngine = await missingForContainers()
const whyNoEngine = why !== "" || noEngine === undefined ? why : ` (skipped: ${noEngine})`

describe.skipIf(whyNoEngine !== "")(`SIGTERM with Docker${whyNoEngine}`, { timeout: 3_600_000 }, () => {
  it(`npm start ends within ten seconds at ${MOMENTS} moments, and leaves no container`, async () => {
    const images = await buildImages()
    const { tools: image } = images
    try {
      const stack = { command: "start", dataDir: join(folder, "docker"), port: await freePair() } as const
      const running = async () => {
        const containers = await docker.listContainers({ filters: { ancestor: [image] } })
        return containers.map(({ Id, Status }) => `${Id} ${Status}`)
      }
      expect(await failedStops({ ...stack, runtime: "docker", image }, running)).toEqual([])
    } finally {
      await images.remove()
    }
  })
})

/** Stops the stack at each moment of its start and life. Returns the moments at which something was left. */
async function failedStops(stack: StackUnderTest, containers: () => Promise<string[]> = async () => []) {
  const span = (await measureStart(stack)) + LIFE_MS
  const seconds: string[] = []
  const failures: unknown[] = []
  for (let moment = 0; moment < MOMENTS; moment++) {
    const at = Math.round((moment * span) / (MOMENTS - 1))
    const remains = await stopAt(stack, at)
    const left = await containers()
    if (remains.seconds === undefined || left.length > 0) failures.push({ at, left, ...remains })
    seconds.push(`${at}:${remains.seconds?.toFixed(1)}`)
  }
  console.log(`npm ${stack.command}: SIGTERM after milliseconds : seconds until the end\n${seconds.join(" ")}`)
  const next = startStack(stack)
  await next.printed(/ready after/)
  await next.stop()
  return failures
}
