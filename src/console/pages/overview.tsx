import { type JobRecord, readBody } from "../../client/client.ts"
import { needsUser } from "../../client/conditions.ts"
import { type CostReport, costReport } from "../../client/costs.ts"
import { readLog } from "../../client/logs.ts"
import { count, usd } from "../format.ts"
import { hourlyUsd } from "../history.ts"
import { type Filters, NO_FILTERS, queryOf } from "../job-filters.ts"
import { lastLineOf } from "../last-line.ts"
import { PageTitle, Time } from "../parts/basics.tsx"
import { MonthMeter } from "../parts/budgets.tsx"
import { History } from "../parts/history.tsx"
import { IdleMachines } from "../parts/idle-machines.tsx"
import { GroupTable, type JobGroup, listOf } from "../parts/job-groups.tsx"
import { jobsAddress } from "../parts/job-table.tsx"
import { Answer, Empty, errorText, type Loaded, useLoad, useReloadOnChange } from "../parts/load.tsx"
import { at, client, may } from "../state.ts"

/** Largest page of the API. */
const PAGE = 200
/** Most jobs of one status that are read to sum them up. */
const MOST = 500
/** Rows of a section. */
const SHOWN = 8
const FAILURES = 5
/** Shortest time between two reads, since each is several requests, milliseconds. */
const RELOAD_MS = 5000

interface Listed {
  jobs: JobRecord[]
  total: number
}

/** Reads the first jobs of a list. */
async function read(filters: Partial<Filters>, most: number, signal: AbortSignal) {
  const query = queryOf({ ...NO_FILTERS, ...filters }, Date.now())
  const jobs: JobRecord[] = []
  let total = 0
  do {
    const limit = Math.min(PAGE, most - jobs.length)
    const params = { query: { ...query, limit, offset: jobs.length } }
    const page = await readBody(client.value.api.GET("/jobs", { params, signal }))
    jobs.push(...page.jobs)
    total = page.total
    if (page.jobs.length === 0) break
  } while (jobs.length < Math.min(most, total))
  return { jobs, total } satisfies Listed
}

interface Groups {
  groups: JobGroup[]
  total: number
}

function readGroups(filters: Partial<Filters>, limit: number, signal: AbortSignal): Promise<Groups> {
  const query = { ...queryOf({ ...NO_FILTERS, ...filters }, Date.now()), limit }
  return readBody(client.value.api.GET("/job-groups", { params: { query }, signal }))
}

const FAILED: Partial<Filters> = { status: "failed", ended: "24h", sort_by: "ended_at" }

interface Overview {
  /** Last runs. */
  runs: Groups
  running: Listed
  booting: Listed
  queued: Listed
  failed: Groups
  failedJobs: Listed
  /** Jobs that ended in the last 24 hours, the last one first. */
  ended: Listed
  month: CostReport
}

async function readOverview(signal: AbortSignal): Promise<Overview> {
  const [runs, running, booting, queued, failed, failedJobs, ended, month] = await Promise.all([
    readGroups({}, SHOWN, signal),
    read({ status: "running" }, MOST, signal),
    read({ status: "booting" }, MOST, signal),
    // Jobs that have run already, and wait for another machine, come first: the chart counts them.
    read({ status: "queued", sort_by: "started_at" }, MOST, signal),
    readGroups(FAILED, FAILURES, signal),
    read(FAILED, 1, signal),
    read({ ended: "24h", sort_by: "ended_at" }, MOST, signal),
    costReport(client.value, {}, signal),
  ])
  return { runs, running, booting, queued, failed, failedJobs, ended, month }
}

/** Returns the dates of the prices of the clouds that the project has connections to. */
async function readPriceDates(signal: AbortSignal): Promise<string[]> {
  const { api } = client.value
  const [answer, { price_dates }] = await Promise.all([
    readBody(api.GET("/connections", { params: { query: { limit: 200 } }, signal })),
    readBody(api.GET("/offers", { params: { query: { limit: 1 } }, signal })),
  ])
  const connections = "connections" in answer ? answer.connections : []
  const own = price_dates.filter(({ cloud }) => connections.some(({ type }) => type === cloud))
  return (own.length > 0 ? own : price_dates).map(({ date }) => date)
}

/** Present state of the project. */
export function OverviewPage() {
  const overview = useLoad("overview", readOverview)
  useReloadOnChange(({ event }) => event === "job", overview.reload, RELOAD_MS)
  const prices = useLoad("prices", readPriceDates)
  return (
    <>
      <PageTitle title="Overview">
        {may("developer") && (
          <a class="button primary" href={at("/new")}>
            New job
          </a>
        )}
      </PageTitle>
      <IdleMachines />
      <Answer of={overview}>{(found) => <Content {...found} prices={prices} />}</Answer>
    </>
  )
}

type Prices = Loaded<string[]>

function Content({ prices, ...of }: Overview & { prices: Prices }) {
  const { runs, running, booting, queued, failed, failedJobs, month } = of
  const paid = [...running.jobs, ...booting.jobs]
  const hourly = paid.reduce((sum, job) => sum + hourlyUsd(job), 0)
  const isPartial = running.total + booting.total > paid.length
  if (runs.total === 0 && month.total_usd === 0)
    return (
      <Empty title="Nothing ran here yet.">
        {may("developer") ? <a href={at("/new")}>Submit a job</a> : <p>Its developers can submit a job.</p>}
      </Empty>
    )
  return (
    <>
      <ul class="tiles">
        <Tile title="Running" value={count(running.total)} href={jobsAddress({ status: "running" })} />
        <Tile title="Booting" value={count(booting.total)} href={jobsAddress({ status: "booting" })} />
        <Tile title="Queued" value={count(queued.total)} href={jobsAddress({ status: "queued" })} />
        <Tile title={isPartial ? "Spend now, at least" : "Spend now"} value={`${usd(hourly)}/h`} />
        <MonthTile month={month} />
        <Tile title="Failed in 24 h" value={count(failedJobs.total)} href={jobsAddress(FAILED)} />
        <PriceTile prices={prices} />
      </ul>
      <Runs runs={runs} />
      <Failures failed={failed} />
      {queued.total > 0 && <Queue queued={queued} />}
      <Day {...of} />
    </>
  )
}

/** Chart of the last day. */
function Day({ running, booting, queued, ended }: Overview) {
  const live = [running, booting, queued]
  const oldest = ended.jobs.at(-1)?.ended_at ?? undefined
  const isCut = ended.total > ended.jobs.length && oldest !== undefined
  const left = live.reduce((sum, { jobs, total }) => sum + total - jobs.length, 0)
  return (
    <section class="panel">
      <h2>Last 24 hours</h2>
      <History
        jobs={[...live, ended].flatMap(({ jobs }) => jobs)}
        wholeSince={isCut ? Date.parse(oldest) : undefined}
        left={left}
      />
    </section>
  )
}

/** Last jobs of the project. An array and a cronjob are one row each. */
function Runs({ runs: { groups, total } }: { runs: Groups }) {
  if (total === 0) return null
  return (
    <section>
      <h2>Last runs</h2>
      <GroupTable groups={groups} />
      {total > groups.length && (
        <p>
          <a href={jobsAddress({ group: "origin" })}>All {count(total)}</a>
        </p>
      )}
    </section>
  )
}

/** Last failures, each with the last line of its output. */
function Failures({ failed: { groups, total } }: { failed: Groups }) {
  if (total === 0) return <p class="minor">No job failed in the last 24 hours.</p>
  return (
    <section class="panel">
      <h2>Failed in the last 24 hours</h2>
      <ul class="plain failures">
        {groups.map((group) => (
          <Failure key={group.latest.id} of={group} />
        ))}
      </ul>
      {total > groups.length && (
        <p>
          <a href={jobsAddress({ ...FAILED, group: "origin" })}>All {count(total)}</a>
        </p>
      )}
    </section>
  )
}

function Failure({ of }: { of: JobGroup }) {
  const { kind, jobs, latest, name } = of
  const { exit_code, reason, message, ended_at } = latest
  const cause = exit_code === null ? (reason ?? "failed") : `exit code ${exit_code}`
  return (
    <li>
      <span class="state">
        <a href={at(`/jobs/${encodeURIComponent(latest.name)}`)}>{latest.name}</a>
        <strong>{cause}</strong>
        {ended_at !== null && (
          <span class="minor">
            <Time at={ended_at} isRelative />
          </span>
        )}
        {kind !== "job" && jobs > 1 && (
          <a href={jobsAddress(listOf(of, { ...NO_FILTERS, ...FAILED }))}>
            and {count(jobs - 1)} more of {name}
          </a>
        )}
      </span>
      {message !== null && message !== cause && <span class="minor">{message}</span>}
      <LastLine of={latest} />
    </li>
  )
}

/** Lines from which the last one that is not empty is taken. */
const TAIL = 20

async function readLastLine(id: string, signal: AbortSignal): Promise<string | undefined> {
  const decoder = new TextDecoder()
  let text = ""
  // The end of a long line is enough.
  for await (const piece of readLog(client.value, id, { follow: false, tail: TAIL, signal }))
    text = (text + decoder.decode(piece, { stream: true })).slice(-LONGEST_TAIL)
  return lastLineOf(text)
}

/** Characters of the end of a log that are kept. */
const LONGEST_TAIL = 65_536

/** Last line of a job's output, or why there is none. */
function LastLine({ of: { id, started_at } }: { of: JobRecord }) {
  const line = useLoad(`last line ${id}`, (signal) => readLastLine(id, signal))
  if (started_at === null) return <span class="minor">It never started, so it wrote nothing.</span>
  const { data, error, isLoading, reload } = line
  if (error.value !== undefined)
    return (
      <span class="error">
        Its output can't be read: {errorText(error.value).text}{" "}
        <button type="button" class="small" onClick={reload}>
          Try again
        </button>
      </span>
    )
  if (data.value !== undefined) return <code class="last-line">{data.value}</code>
  return <span class="minor">{isLoading.value ? "Reading its output …" : "It wrote nothing."}</span>
}

function Tile({ title, value, href }: { title: string; value: string; href?: string }) {
  const content = (
    <>
      <span class="tile-title">{title}</span>
      <span class="tile-value">{value}</span>
    </>
  )
  return (
    <li>
      {href === undefined ? (
        <div class="tile">{content}</div>
      ) : (
        <a class="tile" href={href}>
          {content}
        </a>
      )}
    </li>
  )
}

/** Spending of the month, against the cap that leaves the least. */
function MonthTile({ month: { total_usd, budgets } }: { month: CostReport }) {
  const capped = budgets.filter(({ left_usd }) => left_usd !== null)
  const [nearest] = capped.sort((a, b) => (a.left_usd ?? 0) - (b.left_usd ?? 0))
  return (
    <li>
      <a class="tile" href={at("/costs")}>
        <span class="tile-title">This month</span>
        <span class="tile-value">{usd(total_usd)}</span>
        {nearest !== undefined && <MonthMeter of={nearest} isShort />}
      </a>
    </li>
  )
}

function PriceTile({ prices }: { prices: Prices }) {
  const [oldest] = (prices.data.value ?? []).toSorted()
  if (oldest === undefined) return null
  return (
    <li>
      <div class="tile">
        <span class="tile-title">Oldest prices</span>
        <span class="tile-value">
          <Time at={oldest} isRelative />
        </span>
      </div>
    </li>
  )
}

/** Number of jobs at the head of a line that are shown. */
const HEAD_OF_LINE = 5

/** First jobs of the project's line, in its order. Nothing if none of the jobs stands in it. */
function Line({ of }: { of: readonly JobRecord[] }) {
  const place = ({ queue_position }: JobRecord) => queue_position ?? Number.POSITIVE_INFINITY
  const line = of.filter(({ queue_position }) => queue_position !== null).sort((a, b) => place(a) - place(b))
  if (line.length < 2) return null
  return (
    <ol class="plain minor" aria-label="The line">
      {line.slice(0, HEAD_OF_LINE).map(({ id, name, queue_position, priority }) => (
        <li key={id}>
          {queue_position}. <a href={at(`/jobs/${encodeURIComponent(name)}`)}>{name}</a>
          {priority !== 0 && ` (priority ${priority})`}
        </li>
      ))}
    </ol>
  )
}

/** Reasons for which jobs wait: first those that only the user can end, then the most frequent. */
function Queue({ queued: { jobs, total } }: { queued: Listed }) {
  const reasons = Map.groupBy(jobs, ({ reason }) => reason ?? "Waiting for its turn")
  const isForUser = ([first]: readonly JobRecord[]) => first !== undefined && needsUser(first)
  const sorted = [...reasons].sort(([, a], [, b]) => Number(isForUser(b)) - Number(isForUser(a)) || b.length - a.length)
  return (
    <section class="panel">
      <h2>Why jobs wait</h2>
      {total > jobs.length && <p class="minor">Of the newest {count(jobs.length)}:</p>}
      <ul class="plain reasons">
        {sorted.map(([reason, of]) => (
          <li key={reason}>
            <strong>{count(of.length)}</strong> {reason}
            {isForUser(of) && <span class="tag trouble">needs you</span>}
            {of[0]?.message && <span class="minor"> {of[0].message}</span>}
            <Line of={of} />
          </li>
        ))}
      </ul>
    </section>
  )
}
