import { readFile, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { expect, it } from "vitest"
import { expectStopped, folder, prepareStacks, start } from "../e2e/stack.ts"
import { type Ended, run } from "./command.ts"

/** A day of a person who has only the command line, on a terminal of 120 columns. Jobs really run. */
prepareStacks()

const WIDTH = 120

/** Container that fails for some values, until the file is there. */
const SWEEP = `echo "begins"
echo "loss of lr=$lr seed=$seed"
[ -e "$MENDED" ] && exit 0
[ "$seed" = 7 ] && exit 9
[ "$lr$seed" = 0.13 ] && exit 3
exit 0`

const FAILED = [
  ["2", "lr=0.1 seed=3", "sweep-2", "3"],
  ["6", "lr=0.1 seed=7", "sweep-6", "9"],
  ["16", "lr=0.01 seed=7", "sweep-16", "9"],
  ["26", "lr=0.001 seed=7", "sweep-26", "9"],
]

const CRONJOB = `name: nightly
cron_spec: "0 3 1 1 *"
job_definition: { image: "busybox:1.36", command: [sh, -c, "echo report of the night"] }
`

it("a user of berth sweeps 30 values, finds those that failed, runs them again, runs a cronjob, and sees the costs", async () => {
  const dataDir = join(folder, "day")
  const stack = start("serve", dataDir, ["--port", "0", "--config-home", join(folder, "config")])
  await stack.printed(/Berth is up at/, 240)
  const text = await readFile(join(dataDir, "env"), "utf8")
  const variable = (name: string) => new RegExp(`^${name}=(.*)$`, "m").exec(text)?.[1]
  const environment = {
    BERTH_URL: variable("BERTH_URL"),
    BERTH_API_KEY: variable("BERTH_API_KEY"),
    XDG_STATE_HOME: join(folder, "state"),
  }
  const tooWide: string[] = []
  const berth = async (argv: string[], input?: string): Promise<Ended> => {
    const ended = await run(argv, environment, input)
    const lines = `${ended.out}${ended.err}`.split("\n")
    if (!argv.includes("--json")) tooWide.push(...lines.filter((line) => line.length > WIDTH))
    return ended
  }
  const mended = join(folder, "mended")
  const job = ["--image", "busybox:1.36", "--entrypoint", "sh", "-e", `MENDED=${mended}`, "--timeout", "10m"]
  const sweep = [...job, "--max-cost", "1", "--array", "lr=0.1,0.01,0.001 seed=1..10", "--parallelism", "6"]

  const plan = await berth(["plan", ...sweep, "--", "-c", SWEEP])
  expect([plan.code, plan.out]).toEqual([
    0,
    expect.stringMatching(/30 jobs: \$[\d.]+ expected in total, \$[\d.]+ each/),
  ])
  expect(plan.out).toContain("At most $30.00 in total, $1.00 for each job.")
  const swept = await berth(["run", ...sweep, "--name", "sweep", "--yes", "--", "-c", SWEEP])
  expect(swept.code, swept.err).toBe(1)
  expect(swept.err).toMatch(/sweep: failed, 26 succeeded, 4 failed, cost \$/)

  const shown = (await berth(["show"])).out
  const table = shown.slice(shown.indexOf("INDEX")).trim().split("\n").slice(1)
  const rows = table.map((line) => line.trim().split(/ {2,}/))
  expect(rows).toEqual(FAILED.map((row) => [...row, "ContainerFailed"]))
  const last = (await berth(["logs", "--tail", "1"])).out.trim().split("\n")
  expect(last).toHaveLength(30)
  expect(last[6]).toBe("[6] loss of lr=0.1 seed=7")
  expect((await berth(["show", "sweep-6"])).out).toMatch(/^sweep-6 {2}failed, exit code 9\n/)

  await writeFile(mended, "")
  expect((await berth(["array", "retry", "sweep"])).err).toContain("The indexes 2,6,16,26 of sweep run again.")
  const waited = await berth(["array", "wait"])
  expect(waited.code, waited.err).toBe(0)
  expect((await berth(["array", "show"])).out).not.toContain("Failed")
  const jobs = JSON.parse((await berth(["ps", "-a", "--array", "sweep", "--json"])).out)
  expect(jobs).toHaveLength(34)

  expect((await berth(["apply", "-f", "-"], CRONJOB)).out).toBe("cronjob/nightly created\n")
  const ran = await berth(["cron", "run", "nightly"])
  expect(ran.out).toMatch(/^nightly-\w+\n$/)
  expect(await berth(["attach"])).toMatchObject({ code: 0, out: "report of the night\n" })
  expect((await berth(["show"])).out).toMatch(/^nightly-\w+ {2}succeeded, exit code 0\n/)

  for (const argv of [
    ["cost"],
    ["cost", "--by", "job"],
    ["budget", "show"],
    ["ps", "-a"],
    ["array", "ls"],
    ["cron", "ls"],
  ])
    expect(await berth(argv), argv.join(" ")).toMatchObject({ code: 0 })
  const { total_usd } = JSON.parse((await berth(["cost", "--json"])).out)
  const paid = jobs.reduce((sum: number, { actual_cost }: { actual_cost: number }) => sum + actual_cost, 0)
  expect(total_usd).toBeGreaterThanOrEqual(paid - 0.000_01)
  expect(tooWide).toEqual([])

  await stack.stop("SIGINT")
  await expectStopped(stack, { code: 0, dataDir }, expect)
}, 600_000)
