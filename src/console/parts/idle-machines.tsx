import { readBody, type Schemas } from "../../client/client.ts"
import { usd } from "../format.ts"
import { at, client, may } from "../state.ts"
import { ActionFault, useAction } from "./action.tsx"
import { TableFrame, Time } from "./basics.tsx"
import { type Loaded, useLoad, useReloadEvery, useReloadOnChange } from "./load.tsx"

type IdleVm = Schemas["IdleVm"]

/** Most machines that are shown. */
const MOST = 50

/** Time between two reads, milliseconds: the cost grows, and no event says that a machine waits. */
const RELOAD_MS = 15_000

/** Machines that wait for another job, with the cost of the wait. Nothing if there is none. */
export function IdleMachines() {
  const read = (signal: AbortSignal) =>
    readBody(client.value.api.GET("/idle", { params: { query: { limit: MOST } }, signal }))
  const list = useLoad("idle", read)
  useReloadOnChange(({ event }) => event === "job", list.reload)
  useReloadEvery(RELOAD_MS, list.reload)
  const { idle, total } = list.data.value ?? { idle: [], total: 0 }
  if (total === 0) return null
  const hourly = idle.reduce((sum, { total_usd_per_hour }) => sum + total_usd_per_hour, 0)
  return (
    <section class="panel">
      <h2>Idle machines</h2>
      <p class="minor">
        They wait for another job, for {usd(hourly)}/h{idle.length < total && ` and more: ${total} in all`}.
      </p>
      <IdleTable of={idle} loaded={list} />
    </section>
  )
}

function IdleTable({ of, loaded }: { of: readonly IdleVm[]; loaded: Pick<Loaded<unknown>, "reload"> }) {
  return (
    <TableFrame label="Idle machines">
      <table>
        <thead>
          <tr>
            <th>After the job</th>
            <th>Machine</th>
            <th class="extra">Region</th>
            <th>Waits until</th>
            <th>Cost of the wait</th>
            {may("developer") && <th>Actions</th>}
          </tr>
        </thead>
        <tbody>
          {of.map((machine) => (
            <Row key={machine.launch} machine={machine} reload={loaded.reload} />
          ))}
        </tbody>
      </table>
    </TableFrame>
  )
}

function Row({ machine, reload }: { machine: IdleVm; reload: () => void }) {
  const { job, key, provider, instance_type, zone, region, idle_until, idle_usd } = machine
  return (
    <tr>
      <td class="wrapping">
        <a href={at(`/jobs/${encodeURIComponent(job)}`)}>{job}</a>
        {key !== null && <span class="tag">{key}</span>}
      </td>
      <td>
        {provider} {instance_type}
      </td>
      <td class="extra">{zone ?? region}</td>
      <td>
        <Time at={idle_until} isRelative />
      </td>
      <td>{usd(idle_usd)}</td>
      {may("developer") && (
        <td>
          <End of={machine} reload={reload} />
        </td>
      )}
    </tr>
  )
}

/** Button that ends a machine. It loses no work, so there is no question. */
function End({ of: { launch, job }, reload }: { of: IdleVm; reload: () => void }) {
  const action = useAction()
  const end = async (): Promise<void> => {
    await client.value.api.DELETE("/idle/{launch}", { params: { path: { launch } } })
    reload()
  }
  return (
    <>
      <button type="button" class="small" disabled={action.isBusy.value} onClick={() => action.run(end)}>
        End<span class="hidden"> the machine of {job}</span>
      </button>
      <ActionFault of={action} />
    </>
  )
}
