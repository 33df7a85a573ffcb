import type { Schemas } from "../../client/client.ts"
import { count, duration, usd } from "../format.ts"
import { type Filters, isNarrowed, NO_FILTERS, STATUSES } from "../job-filters.ts"
import { at } from "../state.ts"
import { costOf, Reason, runTime, Status, TableFrame, Time } from "./basics.tsx"
import { Heading, jobsAddress, NumberHeadings, type Sorting } from "./job-table.tsx"

export type JobGroup = Schemas["JobGroup"]

interface TableProps {
  groups: readonly JobGroup[]
  /** Filters that the jobs of the groups match. Default: none. */
  filters?: Filters
  /** Absent: the titles sort nothing. */
  sorting?: Sorting
}

/** Table with one row for each array, cronjob and single job. */
export function GroupTable({ groups, filters = NO_FILTERS, sorting }: TableProps) {
  return (
    <TableFrame label="Jobs by array and cronjob">
      <table class="cards">
        <thead>
          <tr>
            <Heading by="name" sorting={sorting}>
              Jobs
            </Heading>
            <th>Status</th>
            <NumberHeadings sorting={sorting} />
          </tr>
        </thead>
        <tbody>
          {groups.map((group) => (
            <Row key={group.id} group={group} filters={filters} />
          ))}
        </tbody>
      </table>
    </TableFrame>
  )
}

function Row({ group, filters }: { group: JobGroup; filters: Filters }) {
  const { kind, latest } = group
  return (
    <tr>
      <td class="row-name">
        <GroupName of={group} />
        <span class="minor cut">{kind === "job" ? latest.image : <Members of={group} filters={filters} />}</span>
      </td>
      <td class={kind === "job" ? undefined : "whole-row"}>
        {kind === "job" ? (
          <>
            <Status of={latest.status} />
            <Reason of={latest} />
          </>
        ) : (
          <Counts of={group} filters={filters} />
        )}
      </td>
      <td class="number" data-label="Cost">
        {kind === "job" ? costOf(latest) : usd(isNarrowed(filters) ? group.cost_usd : wholeCost(group))}
      </td>
      <td class="number" data-label="Ran">
        {kind === "job" ? runTime(latest) : group.run_seconds > 0 && duration(group.run_seconds)}
      </td>
      <td class="number" data-label={kind === "job" ? "Submitted" : "Last submitted"}>
        <Time at={group.created_at} isRelative />
      </td>
    </tr>
  )
}

/** Name of a group, with a link to its page. */
export function GroupName({ of: { kind, name, exists } }: { of: Pick<JobGroup, "kind" | "name" | "exists"> }) {
  return exists ? <a href={at(`/${kind}s/${encodeURIComponent(name)}`)}>{name}</a> : <strong>{name}</strong>
}

/** Returns the filters of the list of a group's jobs. */
export function listOf({ kind, name, id, exists }: JobGroup, filters: Filters): Filters {
  const origin = exists ? name : id
  return { ...filters, group: "", offset: 0, [kind]: origin }
}

/** Kind and number of jobs, with a link to their list. */
function Members({ of, filters }: { of: JobGroup; filters: Filters }) {
  const { kind, exists, jobs } = of
  return (
    <>
      {exists ? kind : `deleted ${kind}`} ·{" "}
      <a href={jobsAddress(listOf(of, filters))}>{jobs === 1 ? "1 job" : `${count(jobs)} jobs`}</a>
    </>
  )
}

/** Numbers of a group's jobs by status, each with a link to their list. */
function Counts({ of, filters }: { of: JobGroup; filters: Filters }) {
  const whole = isNarrowed(filters) ? undefined : wholeOf(of)
  const shown = whole?.counts ?? of.counts
  const pending = whole?.counts.pending ?? 0
  return (
    <span class="state">
      {STATUSES.filter((status) => shown[status] > 0).map((status) => (
        <a key={status} class={`status ${status}`} href={jobsAddress({ ...listOf(of, filters), status })}>
          <i aria-hidden="true" />
          {count(shown[status])} {status}
        </a>
      ))}
      {pending > 0 && <span class="minor">{count(pending)} not created yet</span>}
    </span>
  )
}

/**
 * Returns the array itself, which also counts jobs that were deleted. Undefined: none, or its status is older than the
 * jobs that are there.
 */
function wholeOf({ whole, jobs }: JobGroup) {
  return whole !== null && whole.size - whole.counts.pending >= jobs ? whole : undefined
}

/** Returns the cost of a group with its deleted jobs. Both sums leave something out: live machines, or deleted jobs. */
function wholeCost({ cost_usd, whole }: JobGroup): number {
  return Math.max(cost_usd, whole?.actual_cost ?? 0)
}
