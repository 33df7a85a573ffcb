import { type Signal, useSignal } from "@preact/signals"
import { useEffect } from "preact/hooks"
import { type ArrayRecord, readArray } from "../../client/arrays.ts"
import { type JobRecord, readBody, type Schemas } from "../../client/client.ts"
import { ApiError } from "../../client/errors.ts"
import { readJob } from "../../client/jobs.ts"
import { count } from "../format.ts"
import { type Found, isSame, NEEDS, namesText, nameText, type OrderName, pathOf, standingOf } from "../order.ts"
import { at, client } from "../state.ts"
import { Reason, Status } from "./basics.tsx"
import { Answer, errorText, useLoad, useReloadOnChange } from "./load.tsx"
import { PAGE_SIZE, Pages } from "./pages.tsx"

/** Lists of what a job or an array waits for, and of what waits for it. Nothing if there is neither. */
export function Order({ of, name }: { of: JobRecord | ArrayRecord; name: OrderName }) {
  return (
    <>
      {of.after && <Prerequisites key={of.id} of={of} after={of.after} />}
      <WaitedForBy key={nameText(name)} name={name} />
    </>
  )
}

interface PrerequisitesProps {
  of: JobRecord | ArrayRecord
  after: NonNullable<JobRecord["after"]>
}

function Prerequisites({ of, after }: PrerequisitesProps) {
  const all = useLoad(`prerequisites ${of.id}`, (signal) => Promise.all(after.map((one) => find(one, signal))))
  useReloadOnChange((change) => {
    if (change.event !== "job" && change.event !== "array") return false
    const { record, event } = change
    const index = after.findIndex((one) => one[event] === record.name)
    if (index < 0) return false
    // A read that has not ended may be older than this change.
    if (all.data.value === undefined || all.isLoading.value) return true
    // The event has the record itself: no read of all of them is needed.
    all.data.value = all.data.value.with(index, "deleted" in record ? null : record)
    return false
  }, all.reload)
  const title = of.waits_for === null ? "Waited for" : "Waits for"
  return (
    <section class="panel" aria-label={title}>
      <h2>{title}</h2>
      <Answer of={all}>
        {(found) => (
          <ul class="plain">
            {after.map((one, index) => (
              <Prerequisite key={nameText(one)} of={of} one={one} found={found[index] ?? null} />
            ))}
          </ul>
        )}
      </Answer>
    </section>
  )
}

/** Reads the object that has a name now; null: there is none. @throws ApiError, Unreachable */
async function find({ job, array }: OrderName, signal: AbortSignal): Promise<Found | null> {
  try {
    return await (job === null ? readArray(client.value, array ?? "", signal) : readJob(client.value, job, signal))
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null
    throw error
  }
}

function Prerequisite({
  of,
  one,
  found,
}: {
  of: PrerequisitesProps["of"]
  one: Schemas["PrerequisiteRecord"]
  found: Found | null
}) {
  const { status, note } = standingOf(of, one, found)
  return (
    <li class="state">
      {found === null ? <strong>{nameText(one)}</strong> : <a href={at(pathOf(one))}>{nameText(one)}</a>}
      {status !== undefined && <Status of={status} />}
      {note !== undefined && <span>{note}</span>}
      <span class="minor">{NEEDS[one.outcome]}</span>
    </li>
  )
}

/** Jobs and arrays that name a job or an array in `after`. */
function WaitedForBy({ name }: { name: OrderName }) {
  const from = { jobs: useSignal(0), arrays: useSignal(0) }
  const text = nameText(name)
  const all = useLoad(
    `waited for ${text} ${from.jobs.value} ${from.arrays.value}`,
    (signal) => readWaiting(text, { jobs: from.jobs.value, arrays: from.arrays.value }, signal),
    `waited for ${text}`,
  )
  useReloadOnChange((change) => {
    if (change.event !== "job" && change.event !== "array") return false
    const { record } = change
    if ("after" in record) return record.after?.some((one) => isSame(one, name)) === true
    const { jobs = [], arrays = [] } = all.data.value ?? {}
    return [...jobs, ...arrays].some(({ id }) => id === record.id)
  }, all.reload)
  const { data, error } = all
  // Most jobs have none, so their pages have no place for it before it is read.
  const isEmpty = data.value === undefined || data.value.total.jobs + data.value.total.arrays === 0
  if (isEmpty && error.value === undefined) return null
  return (
    <section class="panel" aria-label="Waited for by">
      <h2>Waited for by</h2>
      <Answer of={all}>
        {({ jobs, arrays, total }) => (
          <>
            <WaitingList of={jobs} kind="job" />
            <ListPages from={from.jobs} shown={jobs.length} total={total.jobs} />
            <WaitingList of={arrays} kind="array" />
            <ListPages from={from.arrays} shown={arrays.length} total={total.arrays} />
          </>
        )}
      </Answer>
    </section>
  )
}

interface Offsets {
  jobs: number
  arrays: number
}

/** Reads a page of the jobs, and one of the arrays, that have this text in `after`. */
async function readWaiting(after: string, offset: Offsets, signal: AbortSignal) {
  const { api } = client.value
  const queryFrom = (from: number) => ({ params: { query: { after, limit: PAGE_SIZE, offset: from } }, signal })
  const [jobs, arrays] = await Promise.all([
    readBody(api.GET("/jobs", queryFrom(offset.jobs))),
    readBody(api.GET("/arrays", queryFrom(offset.arrays))),
  ])
  return { jobs: jobs.jobs, arrays: arrays.arrays, total: { jobs: jobs.total, arrays: arrays.total } }
}

function WaitingList({ of, kind }: { of: readonly (JobRecord | ArrayRecord)[]; kind: "job" | "array" }) {
  if (of.length === 0) return null
  return (
    <ul class="plain">
      {of.map((one) => {
        const name = kind === "job" ? { job: one.name, array: null } : { job: null, array: one.name }
        return (
          <li key={one.id} class="state">
            <a href={at(pathOf(name))}>{nameText(name)}</a>
            <Status of={one.status} />
            <Reason of={one} />
          </li>
        )
      })}
    </ul>
  )
}

function ListPages({ from, shown, total }: { from: Signal<number>; shown: number; total: number }) {
  const go = (next: number): void => {
    from.value = next
  }
  return <Pages of={{ offset: from.value, go }} shown={shown} total={total} />
}

/** Dependents that a question names. */
const NAMED = 5

/** Choice of a cancellation: only this one, or also all that waits for it. Nothing if nothing waits. */
export function DependentsChoice({
  id,
  kind,
  isChosen,
}: {
  id: string
  kind: "job" | "array"
  isChosen: Signal<boolean>
}) {
  const params = { path: { id }, query: { limit: NAMED } }
  const dependents = useLoad(`dependents ${id}`, (signal) =>
    readBody(
      kind === "job"
        ? client.value.api.GET("/jobs/{id}/dependents", { params, signal })
        : client.value.api.GET("/arrays/{id}/dependents", { params, signal }),
    ),
  )
  // Each question begins with the same answer.
  useEffect(() => {
    isChosen.value = false
  }, [id])
  const { data, error } = dependents
  if (error.value !== undefined)
    return <p class="fault">What waits for it can't be counted: {errorText(error.value).text}</p>
  if (data.value === undefined) return <p class="minor">Counting what waits for it …</p>
  const { total, dependents: named } = data.value
  if (total === 0) return null
  const names = namesText(named, total)
  return (
    <>
      <p>
        {total === 1
          ? `${names} waits for it. Unless it is cancelled too, it fails. It starts if any end counts for it.`
          : `${count(total)} jobs and arrays wait for it: ${names}. Unless they are cancelled too, they fail. Those for which any end counts start.`}
      </p>
      <label class="toggle">
        <input
          type="checkbox"
          checked={isChosen.value}
          onChange={({ currentTarget: { checked } }) => {
            isChosen.value = checked
          }}
        />
        {total === 1 ? `Cancel ${names} too` : `Cancel these ${count(total)} too`}
      </label>
    </>
  )
}
