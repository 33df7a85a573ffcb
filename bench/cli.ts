import { execFile } from "node:child_process"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { bundleCli } from "../scripts/bundle.ts"
import { systemClock } from "../src/apis/clock.ts"
import { CreationTimes } from "../src/apis/creation-times.ts"
import type { StoredJob } from "../src/apis/job.ts"
import { JOBS } from "../src/facade/caches.ts"
import { jobOf } from "../src/facade/jobs/submission.ts"
import { inParallel } from "../src/runtime/in-parallel.ts"
import { type BenchProject, type FacadeStack, startFacadeStack } from "./facade-stack.ts"
import { usageOf } from "./program.ts"
import { type BenchContext, type BenchResult, spreadOf, within } from "./result.ts"

const CONCURRENCY = 32
const ROUNDS = 7
const JOBS_IN_PROJECT = 50_000
/** Share of the jobs that are cancelled at once. */
const CANCELLED_SHARE = 0.2

/** Goals of the project, seconds. */
const PS_SECONDS = 1
const CANCEL_SECONDS = 30

/**
 * Measures the packaged command in a project with many unfinished jobs: `berth ps`, from the start of its process to the
 * end, and `berth cancel --label` of a fifth of the jobs. Reads the number of cancelled jobs from the API server.
 */
export async function run(context: BenchContext): Promise<BenchResult> {
  const [count = JOBS_IN_PROJECT] = context.sizes ?? []
  const folder = await mkdtemp(join(tmpdir(), "berth-bench-cli-"))
  await bundleCli(folder)
  const stack = await startFacadeStack(context, CONCURRENCY)
  try {
    const project = await stack.makeProject("cli")
    context.report(`creating ${count} jobs ...`)
    await fill(stack, project, count)
    const berth = commandOf(folder, stack, project)
    const lists: number[] = []
    for (let round = 0; round < ROUNDS; round++) lists.push(await secondsOf(() => berth("ps")))
    const before = await cpuSecondsOf(stack)
    const cancelling = await secondsOf(() => berth("cancel", "--label", "part=yes", "--yes"))
    // On a busy machine the duration says less than this.
    const used = (await cpuSecondsOf(stack)) - before
    context.report(`cancelling took ${used.toFixed(1)} s of CPU of façade, API server and etcd`)
    const { items } = await stack.client.list(JOBS, { namespace: project.name })
    const cancelled = items.filter(({ spec }) => spec.cancelled).length
    if (cancelled !== count * CANCELLED_SHARE)
      throw new Error(`${cancelled} jobs are cancelled, not ${count * CANCELLED_SHARE}`)
    return {
      name: "cli",
      rows: [
        within(`berth ps among ${count} jobs, seconds`, lists, PS_SECONDS),
        within(`berth cancel --label of ${cancelled} jobs, seconds`, [cancelling], CANCEL_SECONDS),
      ],
      spread: { "berth ps, seconds": spreadOf(lists) },
    }
  } finally {
    await stack.stop()
    await rm(folder, { recursive: true, force: true })
  }
}

/** Returns the CPU time that façade, API server and etcd have used. */
async function cpuSecondsOf({ facadePid, controlPlane }: FacadeStack): Promise<number> {
  const { pids } = controlPlane
  const usages = await Promise.all([facadePid, pids.etcd, pids["kube-apiserver"]].map(usageOf))
  return usages.reduce((sum, { cpuSeconds }) => sum + cpuSeconds, 0)
}

/** Creates jobs as the façade does, without its rate. */
async function fill(stack: FacadeStack, { name: namespace }: BenchProject, count: number): Promise<void> {
  const times = new CreationTimes(systemClock)
  const tasks = Array.from({ length: count }, (_, n) => () => {
    const part = n < count * CANCELLED_SHARE ? "yes" : "no"
    const submission = { image: "registry.example/team/trainer:1.4.2", labels: { part } }
    const job = jobOf(submission, { namespace, name: `job-${n}`, createdAt: times.next() })
    return stack.client.create(JOBS, job as StoredJob)
  })
  await inParallel(tasks, CONCURRENCY)
}

/** Returns a function that runs the packaged command as a process. */
function commandOf(folder: string, stack: FacadeStack, { name, headers }: BenchProject) {
  const env = {
    BERTH_URL: stack.url,
    BERTH_PROJECT: name,
    BERTH_API_KEY: headers["x-service-api-key"],
    PATH: join(process.execPath, ".."),
  }
  return async (...args: string[]): Promise<string> => {
    const { stdout } = await promisify(execFile)(process.execPath, [join(folder, "berth.mjs"), ...args], { env })
    return stdout
  }
}

async function secondsOf(task: () => Promise<unknown>): Promise<number> {
  const begun = performance.now()
  await task()
  return (performance.now() - begun) / 1000
}
