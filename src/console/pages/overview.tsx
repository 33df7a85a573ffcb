import { fetched, type JobRecord } from "../../client/client.ts"
import { type CostReport, costReport } from "../../client/costs.ts"
import { count, usd } from "../format.ts"
import { PageTitle, Time } from "../parts/basics.tsx"
import { MonthMeter } from "../parts/budgets.tsx"
import { History } from "../parts/history.tsx"
import { Answer, Empty, type Loaded, useLoad, useReloadOnChange } from "../parts/load.tsx"
import { at, client, may } from "../state.ts"
import { JobTable, jobsAddress } from "./jobs.tsx"

const PAGE = 100
/** Most jobs of one status that are read to sum them up. */
const MOST = 500
/** Jobs of a section. */
const SHOWN = 5
const DAY_MS = 86_400_000
/** Shortest time between two reads, since each is several requests, milliseconds. */
const RELOAD_MS = 5000

interface Listed {
  jobs: JobRecord[]
  total: number
}

/** Reads the first jobs of a list. */
async function read(query: { status?: JobRecord["status"]; ended_after?: string }, most: number, signal: AbortSignal) {
  const jobs: JobRecord[] = []
  let total = 0
  do {
    const limit = Math.min(PAGE, most - jobs.length)
    const params = { query: { ...query, limit, offset: jobs.length } }
    const page = await fetched(client.value.api.GET("/jobs", { params, signal }))
    jobs.push(...page.jobs)
    total = page.total
    if (page.jobs.length === 0) break
  } while (jobs.length < Math.min(most, total))
  return { jobs, total } satisfies Listed
}

interface Overview {
  running: Listed
  booting: Listed
  queued: Listed
  failed: Listed
  /** Jobs that ended in the last 24 hours. */
  ended: Listed
  month: CostReport
}

async function readOverview(signal: AbortSignal): Promise<Overview> {
  const ended_after = dayAgo()
  const [running, booting, queued, failed, ended, month] = await Promise.all([
    read({ status: "running" }, MOST, signal),
    read({ status: "booting" }, MOST, signal),
    read({ status: "queued" }, MOST, signal),
    read({ status: "failed", ended_after }, SHOWN, signal),
    read({ ended_after }, MOST, signal),
    costReport(client.value, {}, signal),
  ])
  return { running, booting, queued, failed, ended, month }
}

function dayAgo(): string {
  return new Date(Date.now() - DAY_MS).toISOString()
}

/** Returns the dates of the prices of the clouds that the project has connections to. */
async function readPriceDates(signal: AbortSignal): Promise<string[]> {
  const { api } = client.value
  const [answer, { price_dates }] = await Promise.all([
    fetched(api.GET("/connections", { params: { query: { limit: 200 } }, signal })),
    fetched(api.GET("/offers", { params: { query: { limit: 1 } }, signal })),
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
      <Answer of={overview}>{(found) => <Content {...found} prices={prices} />}</Answer>
    </>
  )
}

type Prices = Loaded<string[]>

function Content({ running, booting, queued, failed, ended, month, prices }: Overview & { prices: Prices }) {
  const paid = [...running.jobs, ...booting.jobs]
  const hourly = paid.reduce((sum, { hourly_price_usd }) => sum + (hourly_price_usd ?? 0), 0)
  const isPartial = running.total + booting.total > paid.length
  if (ended.total === 0 && paid.length === 0 && queued.total === 0 && month.total_usd === 0)
    return (
      <Empty title="Nothing ran here in the last 24 hours.">
        {may("developer") && <a href={at("/new")}>Submit a job</a>} <a href={at("/jobs")}>Earlier jobs</a>
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
        <Tile title="Failed in 24 h" value={count(failed.total)} href={failedAddress()} />
        <PriceTile prices={prices} />
      </ul>
      <section class="panel">
        <h2>Last 24 hours</h2>
        <History jobs={[...ended.jobs, ...paid]} isPartial={ended.total > ended.jobs.length || isPartial} />
      </section>
      {queued.total > 0 && <Queue queued={queued} />}
      {running.total > 0 && <Section title="Running" listed={running} address={jobsAddress({ status: "running" })} />}
      {failed.total > 0 && <Section title="Failed in the last 24 hours" listed={failed} address={failedAddress()} />}
    </>
  )
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

/** Reasons for which jobs wait, the most frequent first. */
function Queue({ queued: { jobs, total } }: { queued: Listed }) {
  const reasons = Map.groupBy(jobs, ({ reason }) => reason ?? "Waiting for its turn")
  const sorted = [...reasons].sort(([, a], [, b]) => b.length - a.length)
  return (
    <section class="panel">
      <h2>Why jobs wait</h2>
      {total > jobs.length && <p class="minor">Of the newest {count(jobs.length)}:</p>}
      <ul class="plain reasons">
        {sorted.map(([reason, of]) => (
          <li key={reason}>
            <strong>{count(of.length)}</strong> {reason}
            {of[0]?.message && <span class="minor"> {of[0].message}</span>}
          </li>
        ))}
      </ul>
    </section>
  )
}

function failedAddress(): string {
  return jobsAddress({ status: "failed", ended_after: dayAgo() })
}

function Section({ title, listed, address }: { title: string; listed: Listed; address: string }) {
  return (
    <section>
      <h2>{title}</h2>
      <JobTable jobs={listed.jobs.slice(0, SHOWN)} />
      {listed.total > SHOWN && (
        <p>
          <a href={address}>All {count(listed.total)}</a>
        </p>
      )}
    </section>
  )
}
