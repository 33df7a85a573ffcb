import { useSignal } from "@preact/signals"
import type { ComponentChildren } from "preact"
import { useLocation } from "preact-iso/router"
import { fetched, type JobRecord, type Schemas } from "../../client/client.ts"
import { isEnded } from "../../client/jobs.ts"
import { count, usd } from "../format.ts"
import {
  costOf,
  Dialog,
  Field,
  machineOf,
  PageTitle,
  runTime,
  Status,
  TableFrame,
  Time,
  typed,
} from "../parts/basics.tsx"
import { Answer, Empty, useLoad, useReloadOnChange } from "../parts/load.tsx"
import { offsetIn, PAGE_SIZE, Pages } from "../parts/pages.tsx"
import { at, client, may } from "../state.ts"

type JobCancellation = Schemas["JobCancellation"]

const STATUSES = ["queued", "booting", "running", "succeeded", "failed", "cancelled"] as const

/** Filters of the list, as its address has them. */
interface Filters {
  status: JobRecord["status"] | ""
  name: string
  tag: string[]
  label: string[]
  cronjob: string
  /** The jobs ended at this time or later, RFC 3339. */
  ended_after: string
  array: string
  offset: number
}

function filtersIn(url: string): Filters {
  const query = new URL(url, location.origin).searchParams
  const status = STATUSES.find((one) => one === query.get("status")) ?? ""
  const endedAfter = query.get("ended_after") ?? ""
  return {
    status,
    name: query.get("name") ?? "",
    tag: query.getAll("tag"),
    label: query.getAll("label"),
    cronjob: query.get("cronjob") ?? "",
    ended_after: Number.isNaN(Date.parse(endedAfter)) ? "" : endedAfter,
    array: query.get("array") ?? "",
    offset: offsetIn(query),
  }
}

/** Returns the address of a list. */
export function jobsAddress(filters: Partial<Filters>): string {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(filters)) {
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== "" && one !== 0) query.append(name, String(one))
  }
  const text = query.toString()
  return at(text === "" ? "/jobs" : `/jobs?${text}`)
}

function readJobs({ name, offset, ...filters }: Filters, signal: AbortSignal) {
  const query = { ...filters, name_prefix: name, limit: PAGE_SIZE, offset }
  return fetched(client.value.api.GET("/jobs", { params: { query }, signal }))
}

/** Jobs of the project, newest first. */
export function JobsPage() {
  const { url, route } = useLocation()
  const filters = filtersIn(url)
  const jobs = useLoad(`jobs ${url}`, (signal) => readJobs(filters, signal), "jobs")
  useReloadOnChange(({ event }) => event === "job", jobs.reload)
  const selected = useSignal<ReadonlySet<string>>(new Set())
  const change = (next: Partial<Filters>): void => {
    selected.value = new Set()
    route(jobsAddress({ ...filters, offset: 0, ...next }), true)
  }
  return (
    <>
      <PageTitle title="Jobs">
        {may("developer") && (
          <a class="button primary" href={at("/new")}>
            New job
          </a>
        )}
      </PageTitle>
      <FilterBar filters={filters} change={change} />
      <Answer of={jobs}>
        {({ jobs: found, total }) => (
          <>
            <Cancelling
              filters={filters}
              total={total}
              selected={selected.value}
              done={() => {
                selected.value = new Set()
                jobs.reload()
              }}
            />
            {found.length === 0 ? (
              <NoJobs isFiltered={jobsAddress({ ...filters, offset: 0 }) !== at("/jobs")} />
            ) : (
              <JobTable
                jobs={found}
                selected={selected.value}
                select={(names) => {
                  selected.value = names
                }}
              />
            )}
            {found.length === total && <p class="minor">{count(total)} in all</p>}
            <Pages
              of={{ offset: filters.offset, go: (offset) => change({ offset }) }}
              shown={found.length}
              total={total}
            />
          </>
        )}
      </Answer>
    </>
  )
}

function NoJobs({ isFiltered }: { isFiltered: boolean }) {
  if (isFiltered)
    return (
      <Empty title="No job matches the filters.">
        <a href={at("/jobs")}>Show all jobs</a>
      </Empty>
    )
  return (
    <Empty title="This project has no jobs yet.">
      {may("developer") ? <a href={at("/new")}>Submit the first one</a> : <p>Its developers can submit one.</p>}
    </Empty>
  )
}

function FilterBar({ filters, change }: { filters: Filters; change: (next: Partial<Filters>) => void }) {
  const { status, name, tag, label, cronjob, array, ended_after } = filters
  const listOf = (text: string): string[] => text.split(/[\s,]+/).filter((one) => one !== "")
  return (
    <form class="filters" role="search" aria-label="Filter jobs" onSubmit={(event) => event.preventDefault()}>
      <Field label="Status">
        <select value={status} onChange={(event) => change({ status: event.currentTarget.value as Filters["status"] })}>
          <option value="">any</option>
          {STATUSES.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </Field>
      <Field label="Name begins with">
        <input type="search" value={name} onInput={typed((value) => change({ name: value.trim() }))} />
      </Field>
      <Field label="Tags">
        <input value={tag.join(" ")} onChange={typed((value) => change({ tag: listOf(value) }))} />
      </Field>
      <Field label="Labels">
        <input
          value={label.join(" ")}
          placeholder="team=vision"
          onChange={typed((value) => change({ label: listOf(value) }))}
        />
      </Field>
      {cronjob !== "" && <Removable remove={() => change({ cronjob: "" })}>Cronjob {cronjob}</Removable>}
      {ended_after !== "" && (
        <Removable remove={() => change({ ended_after: "" })}>
          Ended since <Time at={ended_after} isRelative />
        </Removable>
      )}
      {array !== "" && <Removable remove={() => change({ array: "" })}>Array {array}</Removable>}
    </form>
  )
}

/** Filter that a link has set, and that the reader can remove. */
function Removable({ remove, children }: { remove: () => void; children: ComponentChildren }) {
  return (
    <button type="button" onClick={remove}>
      {children} <span aria-hidden="true">×</span>
      <span class="hidden">: remove this filter</span>
    </button>
  )
}

interface TableProps {
  jobs: readonly JobRecord[]
  selected?: ReadonlySet<string>
  select?: (names: ReadonlySet<string>) => void
}

/** Table of jobs. Unfinished ones can be selected where `select` is given. */
export function JobTable({ jobs, selected = new Set(), select }: TableProps) {
  const canSelect = select !== undefined && may("developer")
  const open = jobs.filter((job) => !isEnded(job)).map(({ name }) => name)
  const toggle = (name: string, isOn: boolean): void =>
    select?.(new Set(isOn ? [...selected, name] : [...selected].filter((one) => one !== name)))
  return (
    <TableFrame label="Jobs">
      <table class="cards">
        <thead>
          <tr>
            {canSelect && (
              <th class="check">
                <input
                  type="checkbox"
                  aria-label="Select all unfinished jobs of this page"
                  disabled={open.length === 0}
                  checked={open.length > 0 && open.every((name) => selected.has(name))}
                  onChange={({ currentTarget }) => select(new Set(currentTarget.checked ? open : []))}
                />
              </th>
            )}
            <th>Job</th>
            <th>Status</th>
            <th>Machine</th>
            <th class="number">$/h</th>
            <th class="number">Cost</th>
            <th class="number">Ran</th>
            <th class="number">Submitted</th>
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <JobRow
              key={job.id}
              job={job}
              isSelected={selected.has(job.name)}
              toggle={canSelect ? toggle : undefined}
            />
          ))}
        </tbody>
      </table>
    </TableFrame>
  )
}

interface RowProps {
  job: JobRecord
  isSelected: boolean
  toggle: ((name: string, isOn: boolean) => void) | undefined
}

function JobRow({ job, isSelected, toggle }: RowProps) {
  const machine = machineOf(job)
  const note = job.status === "failed" || job.status === "queued" ? (job.reason ?? "") : ""
  return (
    <tr>
      {toggle !== undefined && (
        <td class="check">
          <input
            type="checkbox"
            aria-label={`Select ${job.name}`}
            disabled={isEnded(job)}
            checked={isSelected}
            onChange={({ currentTarget }) => toggle(job.name, currentTarget.checked)}
          />
        </td>
      )}
      <td class="row-name">
        <a href={at(`/jobs/${encodeURIComponent(job.name)}`)}>{job.name}</a>
        <span class="minor cut">{job.image}</span>
      </td>
      <td>
        <Status of={job.status} />
        {note !== "" && <span class="minor cut">{note}</span>}
      </td>
      <td class="whole-row">{machine !== undefined && <span class="cut">{machine}</span>}</td>
      <td class="number" data-label="$/h">
        {job.hourly_price_usd === null ? "" : usd(job.hourly_price_usd)}
      </td>
      <td class="number" data-label="Cost">
        {costOf(job)}
      </td>
      <td class="number" data-label="Ran">
        {runTime(job)}
      </td>
      <td class="number" data-label="Submitted">
        <Time at={job.created_at} isRelative />
      </td>
    </tr>
  )
}

interface CancellingProps {
  filters: Filters
  total: number
  selected: ReadonlySet<string>
  done: () => void
}

/** Cancels the selected jobs, or all that the filters match. */
function Cancelling({ filters, total, selected, done }: CancellingProps) {
  const asked = useSignal<JobCancellation | undefined>(undefined)
  const { status, tag, label, name, cronjob, array, ended_after } = filters
  const isOpen = status === "queued" || status === "booting" || status === "running"
  // The API selects by status, tags, labels and array only.
  const isNarrowed = isOpen || tag.length > 0 || label.length > 0 || array !== ""
  const isFilter =
    isNarrowed && (isOpen || status === "") && [name, cronjob, ended_after].every((other) => other === "")
  if (!may("developer") || (selected.size === 0 && !(isFilter && total > 0))) return null
  const ofFilters = (): JobCancellation => ({
    ...(isOpen && { status }),
    ...(array !== "" && { array }),
    ...(tag.length > 0 && { tags: tag }),
    ...(label.length > 0 && { labels: Object.fromEntries(label.map(splitLabel)) }),
  })
  return (
    <div class="bulk">
      {selected.size > 0 ? (
        <button
          type="button"
          class="danger"
          onClick={() => {
            asked.value = { names: [...selected] }
          }}
        >
          Cancel {count(selected.size)} selected
        </button>
      ) : (
        <button
          type="button"
          onClick={() => {
            asked.value = ofFilters()
          }}
        >
          Cancel all that match
        </button>
      )}
      {asked.value !== undefined && (
        <CancelDialog
          wanted={asked.value}
          close={() => {
            asked.value = undefined
            done()
          }}
        />
      )}
    </div>
  )
}

function splitLabel(text: string): [string, string] {
  const [, key = text, value = ""] = /^([^=:]*)[=:](.*)$/.exec(text) ?? []
  return [key, value]
}

function CancelDialog({ wanted, close }: { wanted: JobCancellation; close: () => void }) {
  const counted = useLoad("cancellation", (signal) =>
    fetched(
      client.value.api.POST("/jobs/cancellations", { body: wanted, params: { query: { dry_run: true } }, signal }),
    ),
  )
  const matched = counted.data.value?.matched
  return (
    <Dialog
      title={matched === undefined ? "Cancel jobs?" : `Cancel ${count(matched)} ${matched === 1 ? "job" : "jobs"}?`}
      action="Cancel them"
      isDangerous
      act={() => cancelAll(wanted)}
      close={close}
    >
      <p>Their machines are deleted. Their logs and costs stay.</p>
      {counted.error.value !== undefined && <p class="fault">{String(counted.error.value)}</p>}
    </Dialog>
  )
}

/** Cancels jobs until none of them is left: one request cancels as many as fit in its time. @throws Error with the first failure */
async function cancelAll(wanted: JobCancellation): Promise<void> {
  for (;;) {
    const { failed, remaining, cancelled } = await fetched(
      client.value.api.POST("/jobs/cancellations", { body: wanted }),
    )
    const [first] = failed
    if (first !== undefined)
      throw new Error(`${failed.length} could not be cancelled, first ${first.name}: ${first.detail}`)
    if (remaining === 0 || cancelled === 0) return
  }
}
