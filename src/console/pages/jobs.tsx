import { useSignal } from "@preact/signals"
import type { ComponentChildren } from "preact"
import { useLocation } from "preact-iso/router"
import { readBody, type Schemas } from "../../client/client.ts"
import { count } from "../format.ts"
import {
  type Filters,
  filtersIn,
  inputTime,
  ORDERS,
  queryOf,
  SPAN_TEXTS,
  type Span,
  STATUSES,
  timeOfInput,
} from "../job-filters.ts"
import { Dialog, Field, onText, PageTitle } from "../parts/basics.tsx"
import { GroupTable } from "../parts/job-groups.tsx"
import { JobTable, jobsAddress } from "../parts/job-table.tsx"
import { Answer, Empty, useLoad, useReloadOnChange } from "../parts/load.tsx"
import { PAGE_SIZE, Pages } from "../parts/pages.tsx"
import { at, client, may, zone } from "../state.ts"

type JobCancellation = Schemas["JobCancellation"]

/** Changes filters. Without an offset, the list begins at its first page. */
type Change = (next: Partial<Filters>) => void

/** Jobs of the project, each by itself or grouped by what created them. */
export function JobsPage() {
  const { url, route } = useLocation()
  const filters = filtersIn(new URL(url, location.origin).searchParams)
  const change: Change = (next) => route(jobsAddress({ ...filters, offset: 0, ...next }), true)
  const List = filters.group === "" ? JobList : GroupList
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
      <List filters={filters} change={change} />
    </>
  )
}

interface ListProps {
  filters: Filters
  change: Change
}

/** Returns the parameters of the API for the page of a list. */
function pageQuery(filters: Filters) {
  return { query: { ...queryOf(filters, Date.now()), limit: PAGE_SIZE } }
}

function JobList({ filters, change }: ListProps) {
  const address = jobsAddress(filters)
  const jobs = useLoad(
    address,
    (signal) => readBody(client.value.api.GET("/jobs", { params: pageQuery(filters), signal })),
    "jobs",
  )
  useReloadOnChange(({ event }) => event === "job", jobs.reload)
  // Another list has no job selected.
  const selection = useSignal<{ address: string; names: ReadonlySet<string> }>({ address, names: new Set() })
  const selected = selection.value.address === address ? selection.value.names : new Set<string>()
  const select = (names: ReadonlySet<string>): void => {
    selection.value = { address, names }
  }
  const done = (): void => {
    select(new Set())
    jobs.reload()
  }
  return (
    <Answer of={jobs}>
      {({ jobs: found, total }) => (
        <>
          <Cancelling filters={filters} total={total} selected={selected} done={done} />
          {found.length === 0 ? (
            <NoJobs filters={filters} />
          ) : (
            <JobTable jobs={found} sorting={{ ...filters, change }} selected={selected} select={select} />
          )}
          <ListEnd filters={filters} change={change} shown={found.length} total={total} />
        </>
      )}
    </Answer>
  )
}

function GroupList({ filters, change }: ListProps) {
  const groups = useLoad(
    jobsAddress(filters),
    (signal) => readBody(client.value.api.GET("/job-groups", { params: pageQuery(filters), signal })),
    "groups",
  )
  useReloadOnChange(({ event }) => event === "job" || event === "array", groups.reload)
  return (
    <Answer of={groups}>
      {({ groups: found, total }) => (
        <>
          <Cancelling filters={filters} total={total} selected={new Set()} done={groups.reload} />
          {found.length === 0 ? (
            <NoJobs filters={filters} />
          ) : (
            <GroupTable groups={found} filters={filters} sorting={{ ...filters, change }} />
          )}
          <ListEnd filters={filters} change={change} shown={found.length} total={total} />
        </>
      )}
    </Answer>
  )
}

function ListEnd({ filters, change, shown, total }: ListProps & { shown: number; total: number }) {
  if (shown === total) return <p class="minor">{count(total)} in all</p>
  const { offset, sort_by, sort_order } = filters
  const place = { offset, go: (next: number) => change({ offset: next }) }
  const isNewestFirst = sort_by === "created_at" && sort_order === "desc"
  return <Pages of={place} shown={shown} total={total} isNewestFirst={isNewestFirst} />
}

function NoJobs({ filters: { group, sort_by, sort_order, ...filters } }: { filters: Filters }) {
  const order = { group, sort_by, sort_order }
  if (jobsAddress({ ...filters, offset: 0 }) !== at("/jobs"))
    return (
      <Empty title="No job matches the filters.">
        <a href={jobsAddress(order)}>Show all jobs</a>
      </Empty>
    )
  return (
    <Empty title="This project has no jobs yet.">
      {may("developer") ? <a href={at("/new")}>Submit the first one</a> : <p>Its developers can submit one.</p>}
    </Empty>
  )
}

function FilterBar({ filters, change }: ListProps) {
  const { status, name, tag, label, cronjob, array, sort_by, sort_order, group } = filters
  const listOf = (text: string): string[] => text.split(/[\s,]+/).filter((one) => one !== "")
  const order = ORDERS.findIndex(([by, direction]) => by === sort_by && direction === sort_order)
  return (
    <form class="filters many" role="search" aria-label="Filter jobs" onSubmit={(event) => event.preventDefault()}>
      <Field label="Name contains">
        <input type="search" value={name} onInput={onText((value) => change({ name: value.trim().toLowerCase() }))} />
      </Field>
      <Field label="Status">
        <select value={status} onChange={onText((value) => change({ status: value as Filters["status"] }))}>
          <option value="">any</option>
          {STATUSES.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </Field>
      <Times what="submitted" label="Submitted" filters={filters} change={change} />
      <Times what="ended" label="Ended" filters={filters} change={change} />
      <Field label="Tags">
        <input value={tag.join(" ")} onChange={onText((value) => change({ tag: listOf(value) }))} />
      </Field>
      <Field label="Labels">
        <input
          value={label.join(" ")}
          placeholder="team=vision"
          onChange={onText((value) => change({ label: listOf(value) }))}
        />
      </Field>
      <Field label="Sort">
        <select
          value={String(order)}
          onChange={onText((value) => {
            const [by, direction] = ORDERS[Number(value)] ?? ORDERS[0]
            change({ sort_by: by, sort_order: direction })
          })}
        >
          {ORDERS.map(([, , text], index) => (
            <option key={text} value={String(index)}>
              {text}
            </option>
          ))}
        </select>
      </Field>
      <Field label="Group by">
        <select value={group} onChange={onText((value) => change({ group: value as Filters["group"] }))}>
          <option value="">nothing</option>
          <option value="origin">array, cronjob</option>
        </select>
      </Field>
      {cronjob !== "" && <Removable remove={() => change({ cronjob: "" })}>Cronjob {cronjob}</Removable>}
      {array !== "" && <Removable remove={() => change({ array: "" })}>Array {array}</Removable>}
    </form>
  )
}

const BOUNDS = {
  submitted: ["created_after", "created_before"],
  ended: ["ended_after", "ended_before"],
} as const

/** Choice of a period, and the inputs of its times where it has given ones. */
function Times({ what, label, filters, change }: ListProps & { what: keyof typeof BOUNDS; label: string }) {
  const span = filters[what]
  return (
    <>
      <Field label={label}>
        <select value={span} onChange={onText((value) => change({ [what]: value as Span }))}>
          {SPAN_TEXTS.map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
      </Field>
      {span === "between" &&
        BOUNDS[what].map((bound, index) => (
          <Field
            key={bound}
            label={`${label} ${index === 0 ? "from" : "before"}${zone.value === "utc" ? " (UTC)" : ""}`}
          >
            <input
              type="datetime-local"
              value={inputTime(filters[bound], zone.value)}
              onChange={onText((value) => change({ [bound]: timeOfInput(value, zone.value) }))}
            />
          </Field>
        ))}
    </>
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

interface CancellingProps {
  filters: Filters
  total: number
  selected: ReadonlySet<string>
  done: () => void
}

/** Cancels the selected jobs, or all that the filters match. */
function Cancelling({ filters, total, selected, done }: CancellingProps) {
  const asked = useSignal<JobCancellation | undefined>(undefined)
  const { status, tag, label, name, cronjob, array, submitted, ended } = filters
  const isOpen = status === "queued" || status === "booting" || status === "running"
  // The API selects by status, tags, labels and array only.
  const isNarrowed = isOpen || tag.length > 0 || label.length > 0 || array !== ""
  const isFilter =
    isNarrowed && (isOpen || status === "") && [name, cronjob, submitted, ended].every((other) => other === "")
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
    readBody(
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
    const { failed, remaining, cancelled } = await readBody(
      client.value.api.POST("/jobs/cancellations", { body: wanted }),
    )
    const [first] = failed
    if (first !== undefined)
      throw new Error(`${failed.length} could not be cancelled, first ${first.name}: ${first.detail}`)
    if (remaining === 0 || cancelled === 0) return
  }
}
