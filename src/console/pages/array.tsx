import { useSignal } from "@preact/signals"
import { useRoute } from "preact-iso/router"
import { type ArrayRecord, type IndexState, indexStates, jobNameOf } from "../../client/arrays.ts"
import { fetched } from "../../client/client.ts"
import { count, usd } from "../format.ts"
import { Facts, PageTitle, Time } from "../parts/basics.tsx"
import { Answer, useLoad, useReloadOnChange } from "../parts/load.tsx"
import { yamlOf } from "../spec.ts"
import { at, client, may } from "../state.ts"
import { ArrayActions } from "./arrays.tsx"
import { jobsAddress } from "./jobs.tsx"

/** One array: its counts, the grid of its indexes and the definition of its jobs. */
export function ArrayPage() {
  const { params } = useRoute()
  const id = params["array"] ?? ""
  const array = useLoad(`array ${id}`, (signal) =>
    fetched(client.value.api.GET("/arrays/{id}", { params: { path: { id } }, signal })),
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
            <Grid array={found} />
            {found.matrix !== null && (
              <section class="panel">
                <h2>Variables</h2>
                <Facts of={Object.entries(found.matrix).map(([name, values]) => [name, values.join(", ")])} />
              </section>
            )}
            <section class="panel">
              <h2>Definition of its jobs</h2>
              <pre class="code" tabIndex={0} aria-label="Definition of its jobs">
                {yamlOf(found.job_definition)}
              </pre>
            </section>
          </>
        )}
      </Answer>
    </>
  )
}

function Summary({ array }: { array: ArrayRecord }) {
  const { counts } = array
  const shown = Object.entries(counts).filter(([, number]) => number > 0)
  return (
    <section class="panel" aria-label="Summary">
      {array.message !== null && <p class="note">{array.message}</p>}
      <Facts
        of={[
          ["Status", array.status],
          ["Jobs", shown.map(([phase, number]) => `${count(number)} ${phase}`).join(", ")],
          ["At the same time", count(array.parallelism)],
          ["Failures accepted", array.max_failed === null ? "any number" : count(array.max_failed)],
          ["Cost", usd(array.cost)],
          ["Created", <Time at={array.created_at} />],
          ["Ended", array.ended_at === null ? "not yet" : <Time at={array.ended_at} />],
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

function Grid({ array }: { array: ArrayRecord }) {
  const from = useSignal(0)
  const states = indexStates(array)
  const shown = states.slice(from.value, from.value + PAGE)
  const last = from.value + shown.length - 1
  return (
    <section class="panel">
      <h2>Indexes</h2>
      <ol class="indexes" aria-label="Indexes">
        {shown.map((state, offset) => (
          <Cell key={from.value + offset} array={array} index={from.value + offset} state={state} />
        ))}
      </ol>
      {array.size > PAGE && (
        <p class="actions">
          <button type="button" disabled={from.value === 0} onClick={() => (from.value -= PAGE)}>
            Earlier
          </button>
          <span>
            {from.value} to {last} of {array.size - 1}
          </span>
          <button type="button" disabled={last >= array.size - 1} onClick={() => (from.value += PAGE)}>
            Later
          </button>
        </p>
      )}
    </section>
  )
}

function Cell({ array, index, state }: { array: ArrayRecord; index: number; state: IndexState }) {
  const text = `${index}: ${state}`
  return (
    <li>
      {state === "pending" ? (
        <span class="run pending" title={text}>
          <span class="hidden">{text}</span>
        </span>
      ) : (
        <a class={`run ${state}`} href={at(`/jobs/${encodeURIComponent(jobNameOf(array, index))}`)} title={text}>
          <span class="hidden">{text}</span>
        </a>
      )}
    </li>
  )
}
