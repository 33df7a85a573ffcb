import { setTimeout as delay } from "node:timers/promises"
import { type SmokeChoice, type SmokeJob, type SmokeKind, smokeJobs } from "./jobs.ts"
import {
  highestCostUsd,
  isPassed,
  isVmGone,
  renderReport,
  type SmokeLaunch,
  type SmokePlan,
  type SmokeRecord,
  type SmokeResult,
} from "./report.ts"
import type { SendRequest } from "./requests.ts"

export interface SmokeOptions extends SmokeChoice {
  /** Sends a request to the project. */
  send: SendRequest
  kinds: readonly SmokeKind[]
  /** Version of this program. */
  version: string
  /** Time that a job may wait without a VM, minutes. Its message then says why, and more waiting rarely helps. */
  waitMinutes: number
  /** Delay between two looks at a job or at the connections, seconds. Default 5. */
  intervalSeconds?: number
  /** Time that Berth has to check a new connection, seconds. Default 120. */
  checkSeconds?: number
}

export interface SmokeConsole {
  /** Shows progress. */
  progress: (line: string) => void
  /** Asks if the jobs may run. */
  confirm: (question: string) => Promise<boolean>
  /** Shows the report. */
  report: (markdown: string) => void | Promise<void>
}

/** Minutes that a job may take to get its VM and to boot, besides its run. */
const BOOT_MINUTES = 20

/** Minutes until the VM of an ended job must be deleted. */
const END_MINUTES = 15

const LOG_LINES = 20

const ENDED = ["succeeded", "failed", "cancelled"]

/**
 * Runs small jobs on a cloud by the REST API, as a user does. It says before what they may cost, and checks afterwards
 * that no VM is left. An aborted signal cancels the jobs.
 * @returns true if every job passed
 */
export async function runSmoke(options: SmokeOptions, console: SmokeConsole, signal: AbortSignal): Promise<boolean> {
  const { cloud, version, minutes, kinds } = options
  const api = new Api(options.send)
  const connections = await checkedConnections(api, { options, console, signal })
  for (const connection of connections) console.progress(`connection ${connection}`)
  const planned = await Promise.all(smokeJobs(kinds, options).map((job) => plan(api, job)))
  for (const { kind, plan } of planned) console.progress(`${kind}: ${plan.message}`)
  const runnable = planned.filter(({ plan }) => plan.verdict === "placeable")
  const cost = highestCostUsd(
    runnable.map(({ plan }) => plan),
    minutes + BOOT_MINUTES,
  )
  const question =
    `${runnable.length} of ${planned.length} jobs can run. If each VM lives ${minutes + BOOT_MINUTES} minutes, the machines cost ` +
    `$${cost.toFixed(2)}; disks, addresses and traffic are not included. Run them?`
  if (runnable.length > 0 && !(await console.confirm(question))) return false
  const results = await Promise.all(
    planned.map((job) => (runnable.includes(job) ? run(api, job, { options, console, signal }) : { ...job })),
  )
  await console.report(renderReport({ berth: version, cloud, connections, results }))
  return results.every(isPassed)
}

type Planned = SmokeJob & { plan: SmokePlan }

async function plan(api: Api, job: SmokeJob): Promise<Planned> {
  const plan = await api.call<SmokePlan>("POST", "/jobs?dry_run=true", job.body)
  return { ...job, plan }
}

interface Running {
  options: SmokeOptions
  console: SmokeConsole
  signal: AbortSignal
}

/** Runs one job to its end, and waits until its VM is deleted. */
async function run(api: Api, job: Planned, { options, console, signal }: Running): Promise<SmokeResult> {
  const { cloud, minutes, waitMinutes, intervalSeconds = 5 } = options
  const { kind, plan, body } = job
  const result: SmokeResult = { kind, plan }
  try {
    const { job_id: id } = await api.call<{ job_id: string }>("POST", "/jobs", {
      ...body,
      namePrefix: `smoke-${cloud}-${kind}`,
    })
    const look = async () => {
      const record = await api.call<SmokeRecord>("GET", `/jobs/${id}`)
      const said = `${kind}: ${record.status}, VM ${record.vm_status}${record.message === null ? "" : `: ${record.message}`}`
      if (said !== shown) console.progress(said)
      shown = said
      result.record = record
      if (!isWaiting(record)) waitsSince = undefined
      else waitsSince ??= performance.now()
      return record
    }
    let shown = ""
    let waitsSince: number | undefined
    const waitsTooLong = () => waitsSince !== undefined && performance.now() - waitsSince > waitMinutes * 60_000
    await until(look, ({ status }) => ENDED.includes(status) || waitsTooLong(), {
      minutes: minutes + BOOT_MINUTES,
      intervalSeconds,
      signal,
    })
    const last = result.record ?? (await look())
    if (!ENDED.includes(last.status)) {
      // The record of a cancelled job no longer has this message.
      if (isWaiting(last)) result.waiting = `${last.reason ?? ""}: ${last.message ?? ""}`
      const limit = isWaiting(last) ? `get a VM within ${waitMinutes}` : `end within ${minutes + BOOT_MINUTES}`
      console.progress(`${kind}: cancelled, because it did not ${limit} minutes or you stopped it`)
      await api.call("POST", `/jobs/${id}/cancel`)
    }
    const never = new AbortController().signal
    await until(look, (record) => ENDED.includes(record.status) && isVmGone(record), {
      minutes: END_MINUTES,
      intervalSeconds,
      signal: never,
    })
    result.launches = (await api.call<{ launches: SmokeLaunch[] }>("GET", `/jobs/${id}/launches`)).launches
    result.log = (await api.text(`/jobs/${id}/logs?tail=${LOG_LINES}`)).trimEnd()
  } catch (error) {
    result.problem = (error as Error).message
  }
  return result
}

/** Returns true while no VM is requested for the job, for a reason that may last. A job that was just created is Queued. */
function isWaiting({ status, vm_status, reason }: SmokeRecord): boolean {
  return status === "queued" && vm_status === "nonassigned" && reason !== null && reason !== "Queued"
}

/** Looks until a record meets the condition. Returns false if the time ran out or the signal was aborted first. */
async function until(
  look: () => Promise<SmokeRecord>,
  isMet: (record: SmokeRecord) => boolean,
  { minutes, intervalSeconds, signal }: { minutes: number; intervalSeconds: number; signal: AbortSignal },
): Promise<boolean> {
  const deadline = performance.now() + minutes * 60_000
  while (!signal.aborted && performance.now() < deadline) {
    if (isMet(await look())) return true
    await delay(intervalSeconds * 1000, undefined, { signal }).catch(() => undefined)
  }
  return false
}

const CHECK_SECONDS = 120

/**
 * Returns a line for each connection of the cloud, once Berth has checked one of them, or after the time for the check.
 * Without a checked connection no job can run. @throws Error if there is none
 */
async function checkedConnections(api: Api, { options, console, signal }: Running): Promise<string[]> {
  const { cloud, intervalSeconds = 5, checkSeconds = CHECK_SECONDS } = options
  const deadline = performance.now() + checkSeconds * 1000
  let connections = await connectionsOf(api, cloud)
  const isUnchecked = () =>
    connections.length > 0 && connections.every(({ capabilities }) => capabilities === undefined)
  if (isUnchecked()) console.progress(`waiting up to ${checkSeconds} s until Berth has checked the connection`)
  while (isUnchecked() && !signal.aborted && performance.now() < deadline) {
    await delay(intervalSeconds * 1000, undefined, { signal }).catch(() => undefined)
    connections = await connectionsOf(api, cloud)
  }
  return connections.map(lineOf)
}

interface ConnectionFacts {
  name: string
  type: string
  capabilities?: Record<string, { status: string; message?: string }>
}

/** Returns the connections of the cloud. @throws Error if there is none */
async function connectionsOf(api: Api, cloud: string): Promise<ConnectionFacts[]> {
  const { connections } = await api.call<{ connections: ConnectionFacts[] }>("GET", "/connections?limit=100")
  const found = connections.filter(({ type }) => type === cloud)
  if (found.length === 0 && cloud !== "local") {
    throw new Error(
      `the project has no connection of type ${cloud}: create one (docs/connections.md), then run this again`,
    )
  }
  return found
}

function lineOf({ name, capabilities = {} }: ConnectionFacts): string {
  const verdicts = Object.entries(capabilities).map(([use, { status, message = "" }]) =>
    status === "True" ? `${use} True` : `${use} ${status} (${message})`,
  )
  return `${name}: ${verdicts.join(", ") || "not checked yet. `kubectl describe bconn` says why"}`
}

/** REST API of one project. */
class Api {
  readonly #send: SendRequest

  constructor(send: SendRequest) {
    this.#send = send
  }

  /** Makes a call and returns its JSON. @throws Error with the API's own words */
  async call<Answer>(method: string, path: string, body?: object): Promise<Answer> {
    const answer = await this.#send(path, { method, ...(body !== undefined && { body: JSON.stringify(body) }) })
    const text = await answer.text()
    return (text === "" ? undefined : JSON.parse(text)) as Answer
  }

  async text(path: string): Promise<string> {
    return (await this.#send(path, { method: "GET" })).text()
  }
}
