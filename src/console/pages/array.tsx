import { useSignal } from "@preact/signals"
import { useRoute } from "preact-iso/router"
import { type ArrayRecord, type IndexState, indexStates, jobNameOf, valuesOf } from "../../client/arrays.ts"
import { readBody } from "../../client/client.ts"
import { count, usd } from "../format.ts"
import { AdvicePanel } from "../parts/advice.tsx"
import { Facts, PageTitle, Status, Time } from "../parts/basics.tsx"
import { StateMessage } from "../parts/conditions.tsx"
import { IndexTable, Stretch } from "../parts/index-table.tsx"
import { jobsAddress } from "../parts/job-table.tsx"
import { Answer, useLoad, useReloadOnChange } from "../parts/load.tsx"
import { Order } from "../parts/order.tsx"
import { JobDefinition } from "../parts/spec-view.tsx"
import { Workdir } from "../parts/workdir.tsx"
import { at, client, may } from "../state.ts"
import { ArrayActions } from "./arrays.tsx"

/** One array: its counts, the grid of its indexes and the definition of its jobs. */
export function ArrayPage() {
  const { params } = useRoute()
  const id = params["array"] ?? ""
  const array = useLoad(`array ${id}`, (signal) =>
    readBody(client.value.api.GET("/arrays/{id}", { params: { path: { id } }, signal })),
  )
  useReloadOnChange((change) => change.event === "array" && change.record.name === id, array.reload)
  return (
    <>
      <PageTitle title={id}>
        {array.data.value !== undefined && may("developer") && (
          <ArrayActions array={array.data.value} reload={array.reload} />
        )}
      </PageTitle>
      <Answer of={array}>
        {(found) => (
          <>
            <Summary array={found} />
            <Order of={found} name={{ job: null, array: found.name }} />
            <Grid array={found} />
            <AdvicePanel by={{ array: found.name }} isQuiet />
            <IndexTable array={found} reload={array.reload} />
            {found.matrix !== null && (
              <section class="panel">
                <h2>Variables</h2>
                <Facts isWide of={Object.entries(found.matrix).map(([name, values]) => [name, values.join(", ")])} />
              </section>
            )}
            <JobDefinition of={found.job_definition} />
          </>
        )}
      </Answer>
    </>
  )
}

/** Phases of indexes, in the order in which an index has them. */
const PHASES = ["pending", "queued", "booting", "running", "succeeded", "failed", "cancelled"] as const

/** State of an array in a few facts. */
export function Summary({ array }: { array: ArrayRecord }) {
  const {
    counts,
    job_definition: { workdir },
  } = array
  const shown = PHASES.filter((phase) => counts[phase] > 0).map((phase) => `${count(counts[phase])} ${phase}`)
  return (
    <section class="panel" aria-label="Summary">
      <StateMessage of={array} />
      <Facts
        of={[
          ["Status", <Status of={array.status} />],
          ["Jobs", shown.join(", ")],
          ["At the same time", count(array.parallelism)],
          ["Failures accepted", array.max_failed === null ? "any number" : count(array.max_failed)],
          ["Cost", usd(array.actual_cost)],
          ["Created", <Time at={array.created_at} />],
          ["Ended", array.ended_at === null ? "not yet" : <Time at={array.ended_at} />],
          ["Working directory", workdir && <Workdir of={workdir} />],
        ]}
      />
      <p>
        <a href={jobsAddress({ array: array.name })}>All its jobs</a>
      </p>
    </section>
  )
}

/** Number of indexes that the grid shows at a time. */
const PAGE = 1000

/** States of indexes, with their words. */
const STATES: Record<IndexState, string> = {
  succeeded: "succeeded",
  failed: "failed",
  cancelled: "cancelled",
  running: "with an unfinished job",
  pending: "without a job so far",
}

function Grid({ array }: { array: ArrayRecord }) {
  const from = useSignal(0)
  const current = useSignal<number | undefined>(undefined)
  const states = indexStates(array)
  const shown = states.slice(from.value, from.value + PAGE)
  const { queued, booting, running, ...others } = array.counts
  const numbers: Record<IndexState, number> = { ...others, running: queued + booting + running }
  const last = from.value + shown.length - 1
  const indexIn = ({ target }: Event): void => {
    const { index } = (target as Element).closest<HTMLElement>("[data-index]")?.dataset ?? {}
    if (index !== undefined) current.value = Number(index)
  }
  // One cell is in the order of Tab: the chosen one, or the first that has a job.
  const first = shown.findIndex((state) => state !== "pending")
  const isPointed = current.value !== undefined && current.value >= from.value && current.value <= last
  const reached = isPointed ? current.value : from.value + first
  return (
    <section class="panel" aria-labelledby="indexes">
      <h2 id="indexes">Indexes</h2>
      <ul class="legend">
        {(Object.keys(STATES) as IndexState[])
          .filter((state) => numbers[state] > 0)
          .map((state) => (
            <li key={state}>
              <i class={`run ${state}`} aria-hidden="true" /> {count(numbers[state])} {STATES[state]}
            </li>
          ))}
      </ul>
      <ol class="indexes" aria-label="Indexes" onFocusIn={indexIn} onPointerOver={indexIn} onKeyDown={moveFocus}>
        {shown.map((state, offset) => (
          <Cell
            key={from.value + offset}
            array={array}
            index={from.value + offset}
            state={state}
            isReached={from.value + offset === reached}
          />
        ))}
      </ol>
      <p class="minor" aria-hidden="true">
        {reached === undefined || !isPointed
          ? "Point at an index, or reach it with the arrow keys, to see its values."
          : textOf(array, reached, states)}
      </p>
      <Stretch
        label="Pages of the indexes"
        from={from}
        page={PAGE}
        total={array.size}
        text={`${count(from.value)}–${count(last)} of 0–${count(array.size - 1)}`}
      />
    </section>
  )
}

/** Returns an index in words, with the values of its variables. */
function textOf(array: ArrayRecord, index: number, states: readonly IndexState[]): string {
  const state = STATES[states[index] ?? "pending"]
  const values = valuesOf(array, index).map(([name, value]) => `${name}=${value}`)
  return [`${index}: ${state}`, ...values].join(", ")
}

/** Moves the focus among the jobs of a grid by the arrow keys, Home and End. */
function moveFocus(event: KeyboardEvent & { currentTarget: HTMLElement }): void {
  const cells = [...event.currentTarget.querySelectorAll("a")]
  const present = document.activeElement?.closest("a")
  const at = present instanceof HTMLAnchorElement ? cells.indexOf(present) : -1
  if (present == null || at < 0) return
  const columnOf = (cell: HTMLElement) => Math.abs(cell.offsetLeft - present.offsetLeft)
  const nearest = (row: HTMLElement[]) => row.toSorted((a, b) => columnOf(a) - columnOf(b))[0]
  const rowBeside = (others: HTMLElement[]) => {
    const next = others.find(({ offsetTop }) => offsetTop !== present.offsetTop)
    return nearest(others.filter(({ offsetTop }) => offsetTop === next?.offsetTop))
  }
  const moves: Record<string, () => HTMLElement | undefined> = {
    ArrowRight: () => cells[at + 1],
    ArrowLeft: () => cells[at - 1],
    ArrowDown: () => rowBeside(cells.slice(at)),
    ArrowUp: () => rowBeside(cells.slice(0, at + 1).toReversed()),
    Home: () => cells[0],
    End: () => cells.at(-1),
  }
  const move = moves[event.key]
  if (move === undefined) return
  event.preventDefault()
  move()?.focus()
}

interface CellProps {
  array: ArrayRecord
  index: number
  state: IndexState
  /** True for the cell that Tab reaches. */
  isReached: boolean
}

function Cell({ array, index, state, isReached }: CellProps) {
  const text = `${index}: ${state}`
  if (state === "pending")
    return (
      <li data-index={index}>
        <span class="run pending">
          <span class="hidden">{text}</span>
        </span>
      </li>
    )
  const values = valuesOf(array, index).map(([name, value]) => `, ${name}=${value}`)
  return (
    <li data-index={index}>
      <a
        class={`run ${state}`}
        href={at(`/jobs/${encodeURIComponent(jobNameOf(array, index))}`)}
        tabIndex={isReached ? 0 : -1}
      >
        <span class="hidden">
          {text}
          {values}
        </span>
      </a>
    </li>
  )
}
