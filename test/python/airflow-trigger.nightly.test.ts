import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, expect } from "vitest"
import { type Replica, startReplica } from "../harness/facade.ts"
import { jobsOf, projectFixture, setStatus } from "../harness/facade-project.ts"
import { Program } from "../harness/program-process.ts"
import { missingTool, needing } from "../needing.ts"
import { airflowPrograms, berthConnection, withAirflow } from "./airflow.ts"
import { installPackage } from "./package.ts"

/** Airflow's trigger and hook against a façade. No job runs, and no part of Airflow. */
const fixture = projectFixture("airflow-trigger")
const here = needing(missingTool("openapi-python-client", "wheels of berth-jobs", "Airflow"))

let folder: string
let replica: Replica
let env: Record<string, string>

here.describe("the trigger for Airflow", () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-airflow-"))
    env = await withAirflow(folder, (await installPackage(folder)).wheel)
    replica = await startReplica()
  })
  afterAll(async () => {
    await replica?.close()
    await rm(folder, { recursive: true, force: true })
  })

  here.it("waits for a job, and says why it can't", async () => {
    const url = `http://127.0.0.1:${replica.port}`
    const connection = berthConnection(url, fixture.keys.developer, fixture.project)
    const script = join(import.meta.dirname, "airflow_trigger.py")
    const python = join(await airflowPrograms(), "python")
    const program = new Program("airflow_trigger.py", [script], { ...env, ...connection }, python)
    const [, name = ""] = await program.printed(/^job (\S+)$/m)
    await setStatus(fixture, name, { phase: "succeeded", exitCode: 0, completionTime: "2026-01-01T00:00:00Z" })
    const [, events = ""] = await program.printed(/^events (.*)$/m)
    const { id, ...said } = JSON.parse(events) as { id: string }
    expect(said).toEqual({
      ended: { job_id: id },
      timed_out: { job_id: id, timed_out: true },
      wrong: "The Airflow connection wrong has no password: set it to an API key of Berth.",
      missing: 'There is no job with the id or name "missing".',
      tested: [true, "Berth accepts the key."],
    })
    expect(program.output.match(/^after on_kill .*$/gm)).toEqual(["after on_kill queued", "after on_kill cancelled"])
    expect(program.output).not.toContain(fixture.keys.developer)
    expect((await jobsOf(fixture)).filter(({ metadata }) => metadata.name.startsWith("trigger"))).toHaveLength(1)
    expect((await program.ended).code).toBe(0)
  })
})
