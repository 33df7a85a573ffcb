import { type Signal, useSignal } from "@preact/signals"
import { type ArrayIndex, type ArrayRecord, allIndexes, csvOfIndexes, type IndexOrder } from "../../client/arrays.ts"
import { readBody } from "../../client/client.ts"
import { count, duration, usd } from "../format.ts"
import { at, client, may } from "../state.ts"
import { ActionFault, useAction } from "./action.tsx"
import { Field, onText, Status, TableFrame } from "./basics.tsx"
import { Answer, Empty, useLoad, useReloadOnChange } from "./load.tsx"
import { saveFile } from "./save.ts"

/** Rows of a page of the table. */
const PAGE = 50

const ORDERS: Record<string, IndexOrder> = {
  "by index": {},
  "failed first": { sort_by: "status" },
  "highest exit code first": { sort_by: "exit_code", sort_order: "desc" },
  "longest first": { sort_by: "duration", sort_order: "desc" },
  "shortest first": { sort_by: "duration" },
  "most expensive first": { sort_by: "cost", sort_order: "desc" },
}

const STATUSES = ["failed", "cancelled", "running", "booting", "queued", "pending", "succeeded"] as const
type IndexStatus = (typeof STATUSES)[number]

/** Table of an array's indexes: their values, and the results of their last jobs. */
export function IndexTable({ array, reload }: { array: ArrayRecord; reload: () => void }) {
  const { id, name, matrix, size } = array
  const order = useSignal("by index")
  const status = useSignal<IndexStatus | "">("")
  const offset = useSignal(0)
  const action = useAction()
  const query = { ...ORDERS[order.value], ...(status.value !== "" && { status: status.value }) }
  const key = JSON.stringify([id, query, offset.value])
  const rows = useLoad(
    key,
    (signal) => {
      const params = { path: { id }, query: { ...query, limit: PAGE, offset: offset.value } }
      return readBody(client.value.api.GET("/arrays/{id}/indexes", { params, signal }))
    },
    id,
  )
  useReloadOnChange((change) => change.event === "array" && change.record.name === name, rows.reload)
  const choose = (set: (text: string) => void) =>
    onText((text) => {
      set(text)
      offset.value = 0
    })
  const save = async (): Promise<void> => {
    saveFile(`${name}.csv`, [csvOfIndexes(array, await allIndexes(client.value, id, query))], "text/csv")
  }
  const runAgain = (index: number) => async (): Promise<void> => {
    const options = { params: { path: { id } }, body: { indexes: [index] } }
    await readBody(client.value.api.POST("/arrays/{id}/retry-failed", options))
    reload()
    rows.reload()
  }
  return (
    <section class="panel" aria-labelledby="results">
      <h2 id="results">Values and results</h2>
      <div class="filters few">
        <Field label="Show">
          <select
            value={status.value}
            onChange={choose((text) => {
              status.value = text as IndexStatus | ""
            })}
          >
            <option value="">all {count(size)}</option>
            {STATUSES.filter((one) => array.counts[one] > 0 || one === status.value).map((one) => (
              <option key={one} value={one}>
                {one}: {count(array.counts[one])}
              </option>
            ))}
          </select>
        </Field>
        <Field label="Order">
          <select
            value={order.value}
            onChange={choose((text) => {
              order.value = text
            })}
          >
            {Object.keys(ORDERS).map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </Field>
        <button type="button" disabled={action.isBusy.value} onClick={() => action.run(save)}>
          CSV
        </button>
      </div>
      <ActionFault of={action} />
      <Answer of={rows}>
        {({ indexes, total }) =>
          total === 0 ? (
            <Empty title={`No index is ${status.value}.`} />
          ) : (
            <>
              <Results
                indexes={indexes}
                variables={Object.keys(matrix ?? {}).sort()}
                isBusy={action.isBusy.value}
                runAgain={array.status === "cancelled" ? undefined : (index) => action.run(runAgain(index))}
              />
              <Stretch
                label="Pages of the table"
                from={offset}
                page={PAGE}
                total={total}
                text={`${count(offset.value + 1)}–${count(offset.value + indexes.length)} of ${count(total)}`}
              />
            </>
          )
        }
      </Answer>
    </section>
  )
}

/** Buttons that show the next and the former part of a list. A list of one part has none. */
export function Stretch({
  label,
  from,
  page,
  total,
  text,
}: {
  label: string
  from: Signal<number>
  /** Items of a part. */
  page: number
  total: number
  /** Present part in words. */
  text: string
}) {
  const show = (direction: 1 | -1) => (): void => {
    from.value += direction * page
  }
  if (total <= page) return null
  return (
    <nav class="pages" aria-label={label}>
      <button type="button" disabled={from.value === 0} onClick={show(-1)}>
        Lower
      </button>
      <span>{text}</span>
      <button type="button" disabled={from.value + page >= total} onClick={show(1)}>
        Higher
      </button>
    </nav>
  )
}

interface ResultsProps {
  indexes: readonly ArrayIndex[]
  variables: readonly string[]
  isBusy: boolean
  /** Absent: no index can run again. */
  runAgain: ((index: number) => void) | undefined
}

function Results({ indexes, variables, isBusy, runAgain }: ResultsProps) {
  return (
    <TableFrame label="Values and results">
      <table class="cards">
        <thead>
          <tr>
            <th>Index</th>
            {variables.map((variable) => (
              <th key={variable}>{variable}</th>
            ))}
            <th>Status</th>
            <th class="number">Exit code</th>
            <th class="number">Duration</th>
            <th class="number">Cost</th>
            {may("developer") && <th>Actions</th>}
          </tr>
        </thead>
        <tbody>
          {indexes.map((row) => (
            <Row
              key={row.index}
              row={row}
              variables={variables}
              isBusy={isBusy}
              runAgain={
                runAgain !== undefined && (row.status === "failed" || row.status === "cancelled")
                  ? () => runAgain(row.index)
                  : undefined
              }
            />
          ))}
        </tbody>
      </table>
    </TableFrame>
  )
}

interface RowProps {
  row: ArrayIndex
  variables: readonly string[]
  isBusy: boolean
  /** Absent: the index can't run again. */
  runAgain: (() => void) | undefined
}

function Row({ row, variables, isBusy, runAgain }: RowProps) {
  const { index, job, status, values, exit_code, duration_seconds, cost_usd, reason, message } = row
  return (
    <tr>
      <td class="row-name">
        {job === null ? count(index) : <a href={at(`/jobs/${encodeURIComponent(job)}`)}>{count(index)}</a>}
      </td>
      {variables.map((variable) => (
        <td key={variable} data-label={variable}>
          <span class="cut" title={values[variable]}>
            {values[variable]}
          </span>
        </td>
      ))}
      <td>
        {status === "pending" ? status : <Status of={status} />}
        {status === "failed" && (
          <span class="minor below" title={message ?? undefined}>
            {reason ?? "its job is deleted"}
          </span>
        )}
      </td>
      <td class="number" data-label="Exit code">
        {exit_code}
      </td>
      <td class="number" data-label="Duration">
        {duration_seconds !== null && duration(duration_seconds)}
      </td>
      <td class="number" data-label="Cost">
        {cost_usd !== null && usd(cost_usd)}
      </td>
      {may("developer") && (
        <td>
          {runAgain && (
            <button type="button" class="small" disabled={isBusy} onClick={runAgain}>
              Run again<span class="hidden"> {index}</span>
            </button>
          )}
        </td>
      )}
    </tr>
  )
}
