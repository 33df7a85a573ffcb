import { execFile } from "node:child_process"
import { createHash, randomBytes } from "node:crypto"
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, expect, it } from "vitest"
import { compileCache } from "../../dev/compile-cache.ts"
import { isTerminal } from "../../src/core/apis/job.ts"
import { BUSYBOX, buildImage, docker, missingForContainers } from "../agent/images.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { Installation } from "../harness/installation.ts"
import { needing } from "../needing.ts"

/** Local code and arrays, from the command to the containers: command, façade, operator and agents are programs of their own. */
const MAIN = join(import.meta.dirname, "..", "..", "src", "cli", "main.ts")
const containers = needing(await missingForContainers())

let berth: Installation
/** Folder of the user's code. */
let code: string
/** Folder of the user. */
let home: string

beforeAll(async () => {
  berth = await Installation.create({
    ...{ name: "array", kubeconfig: kubeconfigPath() },
    runtime: await containerRuntime(),
  })
  await berth.startOperator()
  code = await mkdtemp(join(tmpdir(), "berth-code-"))
  home = await mkdtemp(join(tmpdir(), "berth-home-"))
})
afterAll(async () => {
  await berth?.close()
  for (const folder of [code, home]) await rm(folder, { recursive: true, force: true })
})

interface Ended {
  code: number
  out: string
  err: string
}

/** Runs the command in a folder, as a user does. */
function berthIn(cwd: string, ...args: string[]): Promise<Ended> {
  const env = {
    ...compileCache(),
    PATH: process.env["PATH"],
    HOME: home,
    BERTH_URL: berth.url,
    BERTH_API_KEY: berth.apiKey,
  }
  const { promise, resolve } = Promise.withResolvers<Ended>()
  const child = execFile(process.execPath, [MAIN, ...args], { cwd, env }, (_error, out, err) =>
    resolve({ code: child.exitCode ?? -1, out, err }),
  )
  return promise
}

/** Values of the array's indexes, in their order. */
const COMBINATIONS = ["0.1", "0.01"].flatMap((lr) => ["1", "2", "3"].map((seed) => `lr=${lr} seed=${seed}`))

it("an array runs local code once for each of its combinations, in the user's folder", async () => {
  await mkdir(join(code, "data"))
  await writeFile(join(code, "data", "input.txt"), "input\n")
  await writeFile(join(code, "secret.pem"), "secret")
  await writeFile(join(code, ".berthignore"), "*.pem\n")
  const script = 'echo "$BERTH_ARRAY_INDEX of $BERTH_ARRAY_SIZE: lr=$lr seed=$seed $*"; cat data/input.txt; echo *'
  await writeFile(join(code, "train.sh"), `${script}\n`)
  let mostUnfinished = 0
  berth.jobs.onChange(() => {
    const unfinished = berth.jobs.store.list().filter(({ status }) => !isTerminal(status?.phase))
    mostUnfinished = Math.max(mostUnfinished, unfinished.length)
  })
  const array = ["--array", "lr=0.1,0.01 seed=1..3", "--parallelism", "2"]
  const job = ["--image", berth.runtime.image, "--entrypoint", "sh", "--workdir", "."]
  const ended = await berthIn(code, "run", "--name", "sweep", ...job, ...array, "--yes", "--", "train.sh", "--fast")
  expect(ended).toMatchObject({ code: 0, err: expect.stringContaining("sweep: succeeded, 6 succeeded, cost $") })
  const logOf = (index: number) => `${index} of 6: ${COMBINATIONS[index]} --fast\ninput\ndata train.sh\n`
  const logs = await Promise.all(COMBINATIONS.map((_, index) => berth.log(`sweep-${index}`)))
  expect(logs).toEqual(COMBINATIONS.map((_, index) => logOf(index)))
  expect(mostUnfinished).toBe(2)
  const names = (await berthIn(code, "ps", "-a", "-q", "--array", "sweep")).out.trim().split("\n")
  expect(names.sort()).toEqual(COMBINATIONS.map((_, index) => `sweep-${index}`))
  // The same job again, with its values and files.
  const again = await berthIn(code, "rerun", "sweep-4", "--name", "again", "--yes")
  expect(again).toMatchObject({ code: 0, out: logOf(4) })
}, 600_000)

containers.it(
  "a job runs 80 MB of local code in an image without a shell, and uploads it once",
  async () => {
    const image = `berth-test/hasher:${randomBytes(4).toString("hex")}`
    const dockerfile = ["FROM scratch", "COPY busybox /sha256sum", 'ENTRYPOINT ["/sha256sum"]'].join("\n")
    await buildImage(image, { Dockerfile: dockerfile, busybox: await readFile(BUSYBOX) })
    const folder = await mkdtemp(join(tmpdir(), "berth-code-"))
    try {
      const model = randomBytes(80 * 1024 * 1024)
      await writeFile(join(folder, "model.bin"), model)
      const run = () => berthIn(folder, "run", "--image", image, "--workdir", ".", "--yes", "--", "model.bin")
      const out = `${createHash("sha256").update(model).digest("hex")}  model.bin\n`
      expect(await run()).toMatchObject({
        code: 0,
        out,
        err: expect.stringMatching(/Uploaded the workdir \(1 files, 80\.\d MiB\)/),
      })
      expect(await run()).toMatchObject({ code: 0, out, err: expect.stringContaining("nothing was uploaded") })
    } finally {
      await rm(folder, { recursive: true })
      await docker.getImage(image).remove({ force: true, noprune: true })
    }
  },
  600_000,
)
