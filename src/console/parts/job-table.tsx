import type { JobRecord } from "../../client/client.ts"
import { isEnded } from "../../client/jobs.ts"
import { usd } from "../format.ts"
import { type Filters, pathOf, type SortField } from "../job-filters.ts"
import { at, may } from "../state.ts"
import { costOf, machineOf, Reason, runTime, Status, TableFrame, Time } from "./basics.tsx"

/** Returns the address of a list of jobs. */
export function jobsAddress(filters: Partial<Filters>): string {
  return at(pathOf(filters))
}

/** Order of a list, and how to change it. */
export interface Sorting extends Pick<Filters, "sort_by" | "sort_order"> {
  change: (next: Pick<Filters, "sort_by" | "sort_order">) => void
}

interface TableProps {
  jobs: readonly JobRecord[]
  /** Absent: the titles sort nothing. */
  sorting?: Sorting | undefined
  selected?: ReadonlySet<string>
  select?: (names: ReadonlySet<string>) => void
}

/** Table of jobs. Unfinished ones can be selected where `select` is given. */
export function JobTable({ jobs, sorting, selected = new Set(), select }: TableProps) {
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
            <Heading by="name" sorting={sorting}>
              Job
            </Heading>
            <th>Status</th>
            <th>Machine</th>
            <th class="number">$/h</th>
            <NumberHeadings sorting={sorting} />
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

/** Titles of the columns that jobs and groups of jobs have. */
export function NumberHeadings({ sorting }: { sorting: Sorting | undefined }) {
  return (
    <>
      <Heading by="cost" isNumber sorting={sorting}>
        Cost
      </Heading>
      <Heading by="run_time" isNumber sorting={sorting}>
        Ran
      </Heading>
      <Heading by="created_at" isNumber sorting={sorting}>
        Submitted
      </Heading>
    </>
  )
}

interface HeadingProps {
  by: SortField
  isNumber?: boolean
  sorting: Sorting | undefined
  children: string
}

/** Title of a column. It sorts the list by the column, and then in the other direction. */
export function Heading({ by, isNumber = false, sorting, children }: HeadingProps) {
  const className = isNumber ? "number" : undefined
  if (sorting === undefined) return <th class={className}>{children}</th>
  const isBy = sorting.sort_by === by
  const isAscending = isBy && sorting.sort_order === "asc"
  const next = isBy ? (isAscending ? "desc" : "asc") : by === "name" ? "asc" : "desc"
  return (
    <th class={className} aria-sort={isBy ? (isAscending ? "ascending" : "descending") : undefined}>
      <button type="button" class="sort" onClick={() => sorting.change({ sort_by: by, sort_order: next })}>
        {children}
        {isBy && <span aria-hidden="true"> {isAscending ? "↑" : "↓"}</span>}
      </button>
    </th>
  )
}

interface RowProps {
  job: JobRecord
  isSelected: boolean
  toggle: ((name: string, isOn: boolean) => void) | undefined
}

function JobRow({ job, isSelected, toggle }: RowProps) {
  const machine = machineOf(job)
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
        <Reason of={job} />
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
