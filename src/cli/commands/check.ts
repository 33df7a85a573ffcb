import type { Command } from "commander"
import { readBody, type Schemas } from "../../client/client.ts"
import { troublesOf } from "../../client/conditions.ts"
import { CLOUDS } from "../../client/providers.ts"
import type { Call, Commands } from "../command.ts"
import { EXIT, toFailure } from "../exit.ts"
import { readGreeting } from "../installation.ts"
import { durationText, formatTime } from "../table.ts"
import { shown } from "../terminal.ts"
import { listConnections, pricesOf } from "./connection.ts"

/** Result of one check. `bad` makes the command fail. */
interface Finding {
  check: string
  state: "good" | "warning" | "bad"
  text: string
}

/** Difference of the clocks that lets tokens fail, seconds. */
const CLOCK_LIMIT_SECONDS = 30
/** A credential that ends within this time is reported, seconds. */
const ENDS_SOON_SECONDS = 7 * 86_400

/** Age at which prices are reported, seconds. Installations read the clouds' prices daily, if they may. */
const OLD_PRICES_SECONDS = 90 * 86_400

/** `check`: finds out why nothing works. */
export function addCheckCommand(commands: Commands, program: Command): void {
  commands.add(program, {
    usage: "check",
    summary: "Check the address, the credential, the connections, the prices and recent failures.",
    more: "Exit code 1: something is bad, and its line says what to do.",
    examples: [["berth check", "when something does not work"]],
    run: async (call) => {
      const findings: Finding[] = []
      for await (const finding of findingsOf(call)) {
        findings.push(finding)
        if (!call.isForProgram) await call.terminal.line(lineOf(call, finding))
      }
      if (call.isForProgram) await call.printValue(findings)
      return findings.some(({ state }) => state === "bad") ? EXIT.failed : 0
    },
  })
}

const MARKS = { good: ["✓", "green"], warning: ["!", "yellow"], bad: ["✗", "red"] } as const

function lineOf({ terminal }: Call<unknown>, { check, state, text }: Finding): string {
  const [mark, style] = MARKS[state]
  return `${terminal.styled(style, mark)} ${check.padEnd(11)} ${shown(text)}`
}

/** Returns the text of an address that does not answer, with what its reader can do. */
export function unreachableText(message: string): string {
  const hint = /certificate has expired/.test(message)
    ? "The operator of this Berth must renew it."
    : "For a private CA, set NODE_EXTRA_CA_CERTS."
  return `${message.split(". ")[0]}. ${hint}`
}

async function* findingsOf(call: Call<unknown>): AsyncGenerator<Finding> {
  const chosen = call.chosen()
  const { url } = chosen.context
  yield { check: "context", state: "good", text: `${chosen.name ?? "BERTH_URL"}: ${url}` }
  try {
    const { installation, date } = await readGreeting(url, call.signal)
    const version = installation === undefined ? "an older Berth" : `Berth ${installation.version}`
    yield {
      check: "address",
      state: "good",
      text: `${version} answers${url.startsWith("https:") ? " by TLS" : ", without TLS"}`,
    }
    yield clockFinding(date)
  } catch (error) {
    yield {
      check: "address",
      state: "bad",
      text: unreachableText(toFailure(error).message),
    }
    return
  }
  try {
    const caller = await readBody(call.client(chosen).api.GET("/whoami"))
    yield* callerFindings(caller)
  } catch (error) {
    yield { check: "credential", state: "bad", text: toFailure(error).message }
    return
  }
  const connections = await listConnections(call)
  yield* connectionFindings(connections)
  yield* priceFindings(
    call,
    CLOUDS.filter((cloud) => connections.some(({ type }) => type === cloud)),
  )
  yield* jobFindings(call)
}

function clockFinding(date: Date | undefined): Finding {
  if (date === undefined) return { check: "clock", state: "warning", text: "The API sends no time to compare with." }
  const seconds = (Date.now() - date.getTime()) / 1000
  const isBad = Math.abs(seconds) > CLOCK_LIMIT_SECONDS
  const text = isBad
    ? `This machine's clock is ${durationText(Math.abs(seconds))} ${seconds > 0 ? "ahead" : "behind"}: set it, or sign-ins fail.`
    : "The clocks agree."
  return { check: "clock", state: isBad ? "bad" : "good", text }
}

function* callerFindings({
  kind,
  name,
  id,
  role,
  project_id,
  expires_at,
  limits,
  groups,
  warning,
}: Schemas["WhoAmI"]): Generator<Finding> {
  const who = `${kind} ${name ?? id} (${id})`
  yield { check: "credential", state: "good", text: `${who}, ${role} of the project ${project_id}` }
  if (warning != null) yield { check: "groups", state: "warning", text: warning }
  else if (groups != null) yield { check: "groups", state: "good", text: `Your token names ${groups} of your groups.` }
  if (role === "viewer") yield { check: "role", state: "warning", text: "A viewer can't submit or cancel jobs." }
  if (expires_at !== null) {
    const seconds = (Date.parse(expires_at) - Date.now()) / 1000
    const state = kind === "key" && seconds < ENDS_SOON_SECONDS ? "warning" : "good"
    yield {
      check: "expiry",
      state,
      text: `The credential ends at ${formatTime(expires_at)}, in ${durationText(seconds)}.`,
    }
  }
  yield {
    check: "limits",
    state: "good",
    text: `${limits.unfinished_jobs} unfinished jobs, ${limits.requests_per_minute} requests a minute`,
  }
}

type Connection = Awaited<ReturnType<typeof listConnections>>[number]

function* connectionFindings(connections: readonly Connection[]): Generator<Finding> {
  if (connections.length === 0)
    yield { check: "connections", state: "warning", text: "There is none: jobs for a cloud wait. berth connection add" }
  for (const connection of connections) {
    yield* stateFindings(connection)
    const prices = pricesOf(connection)
    if (prices === undefined) continue
    const state = prices.status === "True" ? "good" : "warning"
    const text = `${connection.name} (${connection.type}): ${prices.message ?? prices.reason}`
    yield { check: "prices", state, text }
  }
}

/** Yields what is wrong with a connection, in the words of its conditions, or if it can start VMs. */
function* stateFindings(connection: Connection): Generator<Finding> {
  const { name, type, capabilities, conditions } = connection
  const check = "connections"
  const prices = pricesOf(connection)
  const vms = capabilities?.vms
  const isStalled = conditions?.some((one) => one.type === "Stalled" && one.status === "True") ?? false
  const troubles = troublesOf(conditions, [vms?.message, prices?.message ?? prices?.reason])
  for (const sentence of troubles)
    yield { check, state: isStalled ? "bad" : "warning", text: `${name} (${type}): ${sentence}` }
  if (vms === undefined && troubles.length > 0) return
  yield { check, ...abilityOf(`${name} (${type})`, vms) }
}

/** Returns if a connection can start VMs. */
function abilityOf(
  who: string,
  vms: NonNullable<Connection["capabilities"]>["vms"] | undefined,
): Pick<Finding, "state" | "text"> {
  if (vms === undefined) return { state: "warning", text: `${who} is not checked for VMs.` }
  const why = vms.message ?? vms.reason
  if (vms.status === "Unknown") return { state: "warning", text: `${who} is not checked for VMs: ${why}` }
  if (vms.status === "True") return { state: "good", text: `${who} can start VMs.` }
  return { state: "bad", text: `${who} can't start VMs: ${why}` }
}

/** Yields the age of the prices of each connected cloud. */
async function* priceFindings(
  call: Call<unknown>,
  clouds: readonly (typeof CLOUDS)[number][],
): AsyncGenerator<Finding> {
  const check = "prices"
  if (clouds.length === 0) return
  const query = { cloud: [...clouds], limit: 1 }
  const { price_dates } = await readBody(call.client().api.GET("/offers", { params: { query } }))
  for (const cloud of clouds) {
    const own = price_dates.filter((dates) => dates.cloud === cloud).toSorted((a, b) => (a.date < b.date ? -1 : 1))
    const [oldest] = own
    if (oldest === undefined) {
      yield { check, state: "good", text: `The prices of ${cloud} are this installation's own.` }
      continue
    }
    const seconds = (Date.now() - Date.parse(oldest.date)) / 1000
    const dates = own.map(({ provisioning, date }) => `${provisioning === "spot" ? "spot" : "on demand"} of ${date}`)
    const state = seconds > OLD_PRICES_SECONDS ? "warning" : "good"
    yield { check, state, text: `The prices of ${cloud} are ${dates.join(", ")}: up to ${durationText(seconds)} old.` }
  }
}

/** Yields the state of the newest jobs that wait or have failed, and the last rejection of a cloud. */
async function* jobFindings(call: Call<unknown>): AsyncGenerator<Finding> {
  const { api } = call.client()
  const list = (status: "queued" | "failed") => readBody(api.GET("/jobs", { params: { query: { status, limit: 1 } } }))
  const [queued, failed] = await Promise.all([list("queued"), list("failed")])
  const [waiting] = queued.jobs
  const [last] = failed.jobs
  const parts = [
    waiting === undefined
      ? "no job waits"
      : `${queued.total} wait; ${waiting.name}: ${waiting.message ?? waiting.reason ?? "no reason yet"}`,
    last === undefined ? "none failed" : `the last that failed: ${last.name} (${last.reason})`,
  ]
  yield { check: "jobs", state: waiting?.message == null ? "good" : "warning", text: parts.join("; ") }
  for (const job of [waiting, last]) {
    if (job === undefined) continue
    const path = { params: { path: { id: job.id } } }
    const { timeline } = await readBody(api.GET("/jobs/{id}/timeline", path))
    const refusal = timeline.findLast(({ type }) => type === "Refused" || type === "Unanswered")
    if (refusal === undefined) continue
    yield { check: "rejections", state: "warning", text: `${job.name}, ${refusal.at}: ${refusal.message}` }
    return
  }
}
