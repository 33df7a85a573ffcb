import { useLocation } from "preact-iso/router"
import { readBody } from "../../client/client.ts"
import { type CostReport, costReport, daysOfMonth, focusReport, toCsv } from "../../client/costs.ts"
import { keptMonths, type Part, type Stack, stackCosts } from "../costs.ts"
import { dateText, percent, usd } from "../format.ts"
import { ActionFault, useAction } from "../parts/action.tsx"
import { AdvicePanel } from "../parts/advice.tsx"
import { Field, onText, PageTitle, TableFrame } from "../parts/basics.tsx"
import { Budgets } from "../parts/budgets.tsx"
import { Answer, Empty, useLoad, useReloadOnChange } from "../parts/load.tsx"
import { saveFile } from "../parts/save.ts"
import { StackedDays } from "../parts/stacked-days.tsx"
import { at, client, now, project } from "../state.ts"

/** Shortest time between two reads because of changes, milliseconds. */
const RELOAD_MS = 10_000

/** Properties by which the reader may split the costs, and the part of a day that a chart has of it. */
const GROUPS: Record<string, { title: string; heading: string; part?: Part }> = {
  cloud: { title: "Cloud", heading: "Cloud", part: "by_cloud" },
  provisioning: { title: "On demand or spot", heading: "Bought", part: "by_provisioning" },
  label: { title: "Label", heading: "Label" },
  job: { title: "Job", heading: "Job" },
  cronjob: { title: "Cronjob", heading: "Cronjob" },
}
const WORDS: Record<string, string> = { onDemand: "on demand", unknown: "not known" }

/** Choices of the reader, as the page's address has them. */
interface Choice {
  month: string
  group: string
  /** Key of the label. */
  label: string
}

function choiceIn(url: string): Choice {
  const query = new URL(url, location.origin).searchParams
  const months = keptMonths(now.peek())
  const month = months.find((one) => one === query.get("month")) ?? months[0] ?? ""
  const by = query.get("by") ?? "cloud"
  if (by.startsWith("label:")) return { month, group: "label", label: by.slice(6) }
  return { month, group: by in GROUPS ? by : "cloud", label: "" }
}

interface Costs {
  /** Costs by day, with the budgets. */
  days: CostReport
  /** Costs by the group; undefined without a key of the label. */
  groups: CostReport | undefined
}

/** Value of `by` in the API; undefined if the label has no key yet. */
function byOf({ group, label }: Choice): string | undefined {
  if (group !== "label") return group
  return label === "" ? undefined : `label:${label}`
}

async function readCosts(choice: Choice, signal: AbortSignal): Promise<Costs> {
  const period = daysOfMonth(choice.month) ?? {}
  const by = byOf(choice)
  const [days, groups] = await Promise.all([
    costReport(client.value, { ...period, by: "day" }, signal),
    by === undefined ? undefined : costReport(client.value, { ...period, by }, signal),
  ])
  return { days, groups }
}

/** Costs of a month by day and by a property, and the budgets of the project. */
export function CostsPage() {
  const { url, route } = useLocation()
  const choice = choiceIn(url)
  const costs = useLoad(`costs ${url}`, (signal) => readCosts(choice, signal), choice.month)
  useReloadOnChange(({ event }) => event === "job", costs.reload, RELOAD_MS)
  const change = (next: Partial<Choice>): void => {
    const { month, group, label } = { ...choice, ...next }
    const by = group === "label" ? `label:${label}` : group
    route(at(`/costs?${new URLSearchParams({ month, by })}`), true)
  }
  return (
    <>
      <PageTitle title="Costs">
        <Downloads choice={choice} groups={costs.data.value?.groups} />
      </PageTitle>
      <ChoiceBar choice={choice} change={change} />
      <Answer of={costs}>
        {({ days, groups }) => (
          <>
            <Month choice={choice} days={days} groups={groups} />
            <AdvicePanel />
            <Budgets budgets={days.budgets} reload={costs.reload} />
          </>
        )}
      </Answer>
    </>
  )
}

function ChoiceBar({ choice, change }: { choice: Choice; change: (next: Partial<Choice>) => void }) {
  return (
    <form class="filters few" aria-label="Costs to show" onSubmit={(event) => event.preventDefault()}>
      <Field label="Month (UTC)">
        <select value={choice.month} onChange={onText((month) => change({ month }))}>
          {keptMonths(now.peek()).map((month) => (
            <option key={month} value={month}>
              {dateText(month)}
            </option>
          ))}
        </select>
      </Field>
      <Field label="Split by">
        <select value={choice.group} onChange={onText((group) => change({ group }))}>
          {Object.entries(GROUPS).map(([name, { title }]) => (
            <option key={name} value={name}>
              {title}
            </option>
          ))}
        </select>
      </Field>
      {choice.group === "label" && <LabelKey value={choice.label} change={(label) => change({ label })} />}
    </form>
  )
}

/** Key of a label, with the keys of the newest jobs to choose from. */
function LabelKey({ value, change }: { value: string; change: (key: string) => void }) {
  const jobs = useLoad("labels", (signal) =>
    readBody(client.value.api.GET("/jobs", { params: { query: { limit: 100 } }, signal })),
  )
  const keys = new Set((jobs.data.value?.jobs ?? []).flatMap(({ labels }) => Object.keys(labels ?? {})))
  return (
    <>
      <Field label="Key of the label">
        <input value={value} list="label-keys" placeholder="team" onChange={onText((key) => change(key.trim()))} />
      </Field>
      <datalist id="label-keys">
        {[...keys].sort().map((key) => (
          <option key={key} value={key} />
        ))}
      </datalist>
    </>
  )
}

function Downloads({ choice, groups }: { choice: Choice; groups: CostReport | undefined }) {
  const action = useAction()
  const name = `costs-${project.value}-${choice.month}`
  const saveFocus = async (): Promise<void> => {
    saveFile(`${name}-focus.csv`, [await focusReport(client.value, daysOfMonth(choice.month))], "text/csv")
  }
  return (
    <>
      <ActionFault of={action} />
      <button
        type="button"
        disabled={groups === undefined}
        onClick={() => groups && saveFile(`${name}.csv`, [toCsv(groups)], "text/csv")}
      >
        CSV
      </button>
      <button
        type="button"
        disabled={action.isBusy.value}
        title="One row for each day, cloud and part, in the columns of FOCUS 1.2"
        onClick={() => action.run(saveFocus)}
      >
        FOCUS
      </button>
    </>
  )
}

function Month({ choice, days, groups }: Costs & { choice: Choice }) {
  if (days.total_usd === 0)
    return (
      <Empty title={`Nothing was spent in ${dateText(choice.month)}.`}>
        <p>Berth keeps the costs of 13 months.</p>
      </Empty>
    )
  const { part } = GROUPS[choice.group] ?? {}
  const found = stackCosts(days, part)
  const stack = { ...found, keys: found.keys.map(wordOf) }
  const isNow = choice.month === keptMonths(now.peek())[0]
  return (
    <>
      <section class="panel">
        <header class="panel-title">
          <h2>
            {dateText(choice.month)}
            {isNow && <span class="minor"> so far</span>}
          </h2>
          <strong class="tile-value">{usd(days.total_usd)}</strong>
        </header>
        <StackedDays {...stack} />
        {part === undefined && (
          <p class="minor">Berth keeps days by cloud and by on demand or spot only, so each bar is a total.</p>
        )}
        {stack.undatedUsd > 0 && (
          <p class="minor">{usd(stack.undatedUsd)} have no day: the month has more parts than Berth keeps by day.</p>
        )}
        <DaysTable {...stack} />
      </section>
      {groups === undefined ? (
        <Empty title="Which label?">
          <p>Enter a key, such as team, to see the costs of each of its values.</p>
        </Empty>
      ) : (
        <Groups choice={choice} report={groups} />
      )}
    </>
  )
}

function wordOf(key: string): string {
  return WORDS[key] ?? key
}

/** Numbers of the chart. */
function DaysTable({ keys, days }: Stack) {
  return (
    <details class="group">
      <summary>Numbers of each day</summary>
      <TableFrame label="Costs of each day">
        <table class="cards">
          <thead>
            <tr>
              <th>Day (UTC)</th>
              {keys.length > 1 &&
                keys.map((key) => (
                  <th key={key} class="number">
                    {key}
                  </th>
                ))}
              <th class="number">Total</th>
            </tr>
          </thead>
          <tbody>
            {days
              .filter((day) => day.usd > 0)
              .map(({ day, usd: cost, parts }) => (
                <tr key={day}>
                  <td class="row-name">{dateText(day)}</td>
                  {keys.length > 1 &&
                    parts.map((part, index) => (
                      <td key={keys[index]} class="number" data-label={keys[index]}>
                        {part > 0 && usd(part)}
                      </td>
                    ))}
                  <td class="number">{usd(cost)}</td>
                </tr>
              ))}
          </tbody>
        </table>
      </TableFrame>
    </details>
  )
}

function Groups({ choice, report: { rows, total_usd } }: { choice: Choice; report: CostReport }) {
  const { heading = "" } = GROUPS[choice.group] ?? {}
  const most = Math.max(...rows.map(({ cost_usd }) => cost_usd))
  return (
    <TableFrame label={`Costs by ${choice.group}`}>
      <table class="shares">
        <thead>
          <tr>
            <th>{choice.group === "label" ? choice.label : heading}</th>
            <th class="number">Cost</th>
            <th class="number">Share</th>
            <td class="share" />
          </tr>
        </thead>
        <tbody>
          {rows.map(({ key, cost_usd }) => (
            <tr key={key}>
              <td class="wrapping">
                {key === null ? <span class="minor">{restOf(choice)}</span> : <Key of={key} choice={choice} />}
              </td>
              <td class="number">{usd(cost_usd)}</td>
              <td class="number">{percent(cost_usd, total_usd)}</td>
              <td class="share">
                <i style={{ width: percentWidth(cost_usd / most) }} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </TableFrame>
  )
}

function percentWidth(part: number): string {
  return `${Math.max(0.5, part * 100)}%`
}

/** Returns the meaning of the row without a key. */
function restOf({ group, label }: Choice): string {
  if (group === "label") return `jobs without the label ${label}`
  if (group === "cronjob") return "jobs that no cronjob created"
  return group === "job" ? "jobs that are deleted" : "other"
}

function Key({ of: key, choice: { group } }: { of: string; choice: Choice }) {
  // A deleted cronjob has no page.
  if (group === "cronjob" && key.endsWith(" (deleted)")) return <>{key}</>
  if (group === "job" || group === "cronjob") return <a href={at(`/${group}s/${encodeURIComponent(key)}`)}>{key}</a>
  return <>{wordOf(key)}</>
}
