import { readBody, type Schemas } from "../../client/client.ts"
import { usd } from "../format.ts"
import { at, client, may } from "../state.ts"
import { ActionFault, useAction } from "./action.tsx"
import { TableFrame, Time } from "./basics.tsx"
import { useLoad, useReloadEvery } from "./load.tsx"

/** Time between two reads, milliseconds: the cost grows, and no event says that a machine waits. */
const RELOAD_MS = 15_000

/** Machines that wait for another job, with the cost of the wait. Nothing if there is none. */
export function IdleMachines() {
  const list = useLoad("idle", (signal) => readBody(client.value.api.GET("/idle", { signal })))
  useReloadEvery(RELOAD_MS, list.reload)
  const { idle = [], total = 0 } = list.data.value ?? {}
  if (total === 0) return null
  return (
    <section>
      <h2>Idle machines ({total})</h2>
      <TableFrame label="Idle machines">
        <table>
          <thead>
            <tr>
              <th>After the job</th>
              <th>Machine</th>
              <th>Waits until</th>
              <th>Cost of the wait</th>
              {may("developer") && <th>Actions</th>}
            </tr>
          </thead>
          <tbody>
            {idle.map((machine) => (
              <Row key={machine.launch} of={machine} reload={list.reload} />
            ))}
          </tbody>
        </table>
      </TableFrame>
    </section>
  )
}

function Row({ of, reload }: { of: Schemas["IdleVm"]; reload: () => void }) {
  const { launch, job, key, provider, instance_type, idle_until, idle_usd } = of
  const action = useAction()
  const end = async (): Promise<void> => {
    await client.value.api.DELETE("/idle/{launch}", { params: { path: { launch } } })
    reload()
  }
  return (
    <tr>
      <td class="wrapping">
        <a href={at(`/jobs/${encodeURIComponent(job)}`)}>{job}</a>
        {key !== null && <span class="tag">{key}</span>}
      </td>
      <td>
        {provider} {instance_type}
      </td>
      <td>
        <Time at={idle_until} isRelative />
      </td>
      <td>{usd(idle_usd)}</td>
      {may("developer") && (
        <td>
          <button type="button" class="small" disabled={action.isBusy.value} onClick={() => action.run(end)}>
            End<span class="hidden"> the machine of {job}</span>
          </button>
          <ActionFault of={action} />
        </td>
      )}
    </tr>
  )
}
