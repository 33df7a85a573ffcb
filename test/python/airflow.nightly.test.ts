import { execFile } from "node:child_process"
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, expect } from "vitest"
import { freePort } from "../../dev/controlplane/ports.ts"
import { pythonBuildPrograms } from "../../scripts/python-package.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { eventually, until } from "../harness/eventually.ts"
import { GATE_WAIT, Installation } from "../harness/installation.ts"
import { Program } from "../harness/program-process.ts"
import { missingTool, needing } from "../needing.ts"
import { airflowPrograms, berthConnection, withAirflow } from "./airflow.ts"
import { IMAGE, pythonBlocks } from "./blocks.ts"
import { type InstalledPackage, installPackage } from "./package.ts"

/** A whole Airflow, with scheduler, triggerer and API server, whose tasks run jobs of a whole installation. */
const here = needing(missingTool("openapi-python-client", "wheels of berth-jobs", "Airflow"))
const SECONDS = 100
const run = promisify(execFile)

let folder: string
let installed: InstalledPackage
let env: Record<string, string>
let berth: Installation
let airflow: Program
let address: string
let token: string

here.describe("the operator for Airflow", () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-airflow-"))
    berth = await Installation.create({
      name: "airflow",
      kubeconfig: kubeconfigPath(),
      runtime: await containerRuntime(),
    })
    await berth.startOperator()
    installed = await installPackage(folder)
    const port = await freePort()
    address = `http://localhost:${port}`
    env = {
      ...(await withAirflow(folder, installed.wheel)),
      ...berthConnection(berth.url, berth.apiKey),
      BERTH_IMAGE: berth.runtime.image,
      GATE_WAIT,
      AIRFLOW__API__HOST: "localhost",
      AIRFLOW__API__PORT: String(port),
      AIRFLOW__API__BASE_URL: address,
      AIRFLOW__API__WORKERS: "1",
      AIRFLOW__CORE__EXECUTION_API_SERVER_URL: `${address}/execution/`,
      AIRFLOW__CORE__PARALLELISM: "2",
      AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION: "False",
      AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS: "True",
    }
    const dags = join(folder, "airflow", "dags")
    await mkdir(dags, { recursive: true })
    await cp(join(import.meta.dirname, "airflow_dags.py"), join(dags, "airflow_dags.py"))
    const [example = ""] = await pythonBlocks("integrations.md")
    await writeFile(
      join(dags, "example.py"),
      example.replaceAll(IMAGE, berth.runtime.image).replace('"@daily"', "None"),
    )
    airflow = new Program("airflow", ["standalone"], env, join(await airflowPrograms(), "airflow"))
    await airflow.printed(/Airflow is ready/, SECONDS)
    // It calls itself ready before its API server listens.
    const answer = await eventually(() => fetch(`${address}/auth/token`), SECONDS)
    token = ((await answer.json()) as { access_token: string }).access_token
  })
  afterAll(async () => {
    if (airflow?.running) await airflow.stop("SIGINT")
    await berth?.close()
    await rm(folder, { recursive: true, force: true, maxRetries: 3 })
  })

  here.it("has the types of Airflow", async () => {
    const { sources } = installed
    const python = ["--python-executable", join(await airflowPrograms(), "python")]
    const mypy = join(await pythonBuildPrograms(), "mypy")
    const { stdout } = await run(mypy, ["--cache-dir", join(folder, "mypy"), ...python, "-p", "berth"], {
      cwd: sources,
    })
    expect(stdout).toMatch(/^Success/)
  })

  here.it("belongs to a provider with a type of connection", async () => {
    const { providers } = await api<{ providers: { package_name: string }[] }>("/providers")
    expect(providers.map(({ package_name }) => package_name)).toContain("berth-jobs")
    const hooks = await api<{ connection_type: string; hook_name: string }[]>("/connections/hook_meta", "ui")
    expect(hooks).toContainEqual(expect.objectContaining({ connection_type: "berth", hook_name: "Berth" }))
  })

  here.it(
    "runs the example of docs/integrations.md in triggerer and worker, with logs, results and links",
    async () => {
      const task = await started("training", "train")
      expect(await ended(task)).toBe("success")
      const [job, ...others] = jobsOf(task)
      expect(others).toEqual([])
      expect(await xcoms(task)).toMatchObject({
        ...{ job_id: job?.metadata.uid, return_value: job?.metadata.uid, status: "succeeded", exit_code: 0 },
        cost: expect.any(Number),
      })
      expect(job?.spec.labels).toMatchObject({ team: "vision", "airflow-url": address })
      await logged(task, 1, /Berth runs train-.*after succeeded/s)
      await logged({ ...task, id: "prepare" }, 1, `Ahoy from ${task.run}`)
      const { extra_links } = await api<{ extra_links: object }>(`${pathOf(task)}/links`)
      const page = `${berth.url}/console/projects/${berth.namespace}/jobs/${job?.metadata.name}`
      expect(extra_links).toEqual({ "Job on Berth": page })
    },
  )

  here.it("fails with the words of the job, and of the API", async () => {
    const [failing, rejected] = [await started("fails"), await started("rejected")]
    expect(await ended(failing)).toBe("failed")
    await logged(failing, 1, /JobFailed.*fails-\S+ failed: exit code 3: out of luck/s)
    expect(await xcoms(failing)).toMatchObject({ status: "failed", exit_code: 3 })
    expect(await ended(rejected)).toBe("failed")
    await logged(rejected, 1, /AirflowFailException.*region/s)
    expect(jobsOf(rejected)).toEqual([])
  })

  here.it.each([
    ["a triggerer", "stopped", "starting"],
    ["a worker", "stopped_here", "before"],
  ])("cancels the job that %s waits for when a person ends the task", async (_who, dag, sign) => {
    const task = await started(dag)
    await logged(task, 1, sign)
    await api(pathOf(task), "api", { method: "PATCH", body: JSON.stringify({ new_state: "failed" }) })
    await jobsCancelled(task)
  })

  here.it("cancels the job of a deferred task that exceeds its timeout", async () => {
    const task = await started("overdue")
    expect(await ended(task)).toBe("failed")
    await logged(task, 1, "The execution_timeout 0:00:15 of overdue is over.")
    await jobsCancelled(task)
  })

  here.it("continues with its job after its worker was killed", async () => {
    const task = await started("killed")
    await logged(task, 1, "before")
    process.kill(Number(await readFile(join(folder, "airflow", "task.pid"), "utf8")), "SIGKILL")
    await logged(task, 2, "continues with its job")
    const [job, ...others] = jobsOf(task)
    expect(others).toEqual([])
    const [launch] = berth.launchesOf(job?.metadata.name ?? "")
    await berth.openGate(launch?.metadata.name ?? "")
    expect(await ended(task)).toBe("success")
    await logged(task, 2, /before.*after/s)
    expect(jobsOf(task)).toHaveLength(1)
  })

  here.it("writes its key nowhere", async () => {
    expect(airflow.output).not.toContain(berth.apiKey)
    const { stdout } = await run("grep", ["-rlF", berth.apiKey, join(folder, "airflow")]).catch((none) => none)
    expect(stdout).toBe("")
  })
})

interface Task {
  dag: string
  run: string
  id: string
}

/** Starts a run of a DAG. */
async function started(dag: string, id = dag): Promise<Task> {
  await eventually(() => api(`/dags/${dag}`), SECONDS)
  const init = { method: "POST", body: JSON.stringify({ logical_date: null }) }
  const { dag_run_id } = await api<{ dag_run_id: string }>(`/dags/${dag}/dagRuns`, "api", init)
  return { dag, run: dag_run_id, id }
}

/** Returns the task's state when it has ended. */
async function ended(task: Task): Promise<string> {
  const ends = ["success", "failed", "upstream_failed", "skipped"]
  await until(`${task.id} has ended`, async () => ends.includes(await state(task)), SECONDS)
  return state(task)
}

async function state(task: Task): Promise<string> {
  return (await api<{ state: string }>(pathOf(task))).state
}

/** Returns all values that the task has pushed. */
async function xcoms(task: Task): Promise<Record<string, unknown>> {
  const { xcom_entries } = await api<{ xcom_entries: { key: string }[] }>(`${pathOf(task)}/xcomEntries`)
  const values = xcom_entries.map(async ({ key }) => {
    const { value } = await api<{ value: unknown }>(`${pathOf(task)}/xcomEntries/${key}`)
    return [key, value]
  })
  return Object.fromEntries(await Promise.all(values))
}

/** Resolves when the log of a try has the text: Airflow writes it a moment after the task's state. */
async function logged(task: Task, attempt: number, text: RegExp | string): Promise<void> {
  await eventually(async () => {
    expect(JSON.stringify(await api(`${pathOf(task)}/logs/${attempt}`))).toMatch(text)
  }, SECONDS)
}

/** Resolves when the only job of a task is cancelled. */
async function jobsCancelled(task: Task): Promise<void> {
  await eventually(() => expect(jobsOf(task).map(({ status }) => status?.phase)).toEqual(["cancelled"]), SECONDS)
}

function jobsOf({ dag, run: of, id }: Task) {
  return berth.jobs.store.list().filter(({ spec }) => spec.labels?.["airflow-task"] === `${dag}/${of}/${id}/-1`)
}

function pathOf({ dag, run: of, id }: Task): string {
  return `/dags/${dag}/dagRuns/${encodeURIComponent(of)}/taskInstances/${id}`
}

/** Calls Airflow's REST API, or that of its UI. */
async function api<T>(path: string, part: "api" | "ui" = "api", init: RequestInit = {}): Promise<T> {
  const headers = { Authorization: `Bearer ${token}`, Accept: "application/json", "Content-Type": "application/json" }
  const response = await fetch(`${address}${part === "api" ? "/api/v2" : "/ui"}${path}`, { ...init, headers })
  if (!response.ok) throw new Error(`Airflow answers ${path} with ${response.status}: ${await response.text()}`)
  return (await response.json()) as T
}
