import { useSignal } from "@preact/signals"
import type { ArrayRecord } from "../../client/arrays.ts"
import { readBody } from "../../client/client.ts"
import { count, usd } from "../format.ts"
import { ActionFault, useAction } from "../parts/action.tsx"
import { CancelButton, PageTitle, Reason, Status, TableFrame, Time } from "../parts/basics.tsx"
import { Answer, Empty, useReloadOnChange } from "../parts/load.tsx"
import { DependentsChoice } from "../parts/order.tsx"
import { Pages, SearchBar, useSearch } from "../parts/pages.tsx"
import { at, client, may } from "../state.ts"

/** Arrays of the project, with their counts and costs. */
export function ArraysPage() {
  const arrays = useSearch("/arrays", (query, signal) =>
    readBody(client.value.api.GET("/arrays", { params: { query }, signal })),
  )
  useReloadOnChange(({ event }) => event === "array", arrays.reload)
  return (
    <>
      <PageTitle title="Arrays" />
      <SearchBar of={arrays} what="arrays" />
      <Answer of={arrays}>
        {({ arrays: found, total }) =>
          total === 0 && arrays.search.name !== "" ? (
            <Empty title="No array has this in its name." />
          ) : total === 0 ? (
            <Empty title="This project has no arrays.">
              <p>
                {may("developer") && <a href={at("/new?as=array")}>Create one</a>} <code>berth run --array 100</code>,
                kubectl and the REST API make them too.
              </p>
            </Empty>
          ) : (
            <>
              <TableFrame label="Arrays">
                <table class="cards">
                  <thead>
                    <tr>
                      <th>Array</th>
                      <th>Status</th>
                      <th class="number">Jobs</th>
                      <th class="number">Running</th>
                      <th class="number">Succeeded</th>
                      <th class="number">Failed</th>
                      <th class="number">Cost</th>
                      <th class="number">Created</th>
                    </tr>
                  </thead>
                  <tbody>
                    {found.map((array) => (
                      <Row key={array.id} array={array} />
                    ))}
                  </tbody>
                </table>
              </TableFrame>
              <Pages of={arrays} shown={found.length} total={total} isNewestFirst={arrays.search.order === ""} />
            </>
          )
        }
      </Answer>
    </>
  )
}

function Row({ array }: { array: ArrayRecord }) {
  const { name, status, size, counts, actual_cost, created_at } = array
  return (
    <tr>
      <td class="row-name">
        <a href={at(`/arrays/${encodeURIComponent(name)}`)}>{name}</a>
      </td>
      <td>
        <Status of={status} />
        <Reason of={array} />
      </td>
      <td class="number" data-label="Jobs">
        {count(size)}
      </td>
      <td class="number" data-label="Running">
        {count(counts.running)}
      </td>
      <td class="number" data-label="Succeeded">
        {count(counts.succeeded)}
      </td>
      <td class="number" data-label="Failed">
        {count(counts.failed)}
      </td>
      <td class="number" data-label="Cost">
        {usd(actual_cost)}
      </td>
      <td class="number" data-label="Created">
        <Time at={created_at} isRelative />
      </td>
    </tr>
  )
}

/** Buttons that run failed indexes again, and cancel an array. */
export function ArrayActions({ array, reload }: { array: ArrayRecord; reload: () => void }) {
  const action = useAction()
  const isWithDependents = useSignal(false)
  const { id, name, size, counts, status, ended_at } = array
  const params = { path: { id } }
  const retry = async (): Promise<void> => {
    await readBody(client.value.api.POST("/arrays/{id}/retry-failed", { params }))
    reload()
  }
  const cancel = async (): Promise<void> => {
    await readBody(
      client.value.api.POST("/arrays/{id}/cancel", {
        params: { ...params, query: { dependents: isWithDependents.value } },
      }),
    )
    reload()
  }
  const unended = size - counts.succeeded - counts.failed - counts.cancelled
  return (
    <>
      <ActionFault of={action} />
      {counts.failed > 0 && status !== "cancelled" && (
        <button type="button" disabled={action.isBusy.value} onClick={() => action.run(retry)}>
          Run {count(counts.failed)} failed again
        </button>
      )}
      <CancelButton
        of={name}
        action="Cancel the array"
        isShown={ended_at === null && status !== "cancelled"}
        act={cancel}
      >
        <p>{count(unended)} of its jobs have not ended. An array that is cancelled can't run again.</p>
        <DependentsChoice id={id} kind="array" isChosen={isWithDependents} />
      </CancelButton>
    </>
  )
}
