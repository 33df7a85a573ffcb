import { useSignal } from "@preact/signals"
import { type JobRecord, readBody } from "../../client/client.ts"
import { client, installation } from "../state.ts"
import { ActionFault, useAction } from "./action.tsx"
import { Copy, Field, onText } from "./basics.tsx"
import { Answer, useLoad } from "./load.tsx"

interface PortsProps {
  job: Pick<JobRecord, "id" | "name">
  /** Is called after a session has begun. */
  onChange: () => void
}

/** Ports of a job's container, in the browser or by the command line. */
export function PortsPart({ job, onChange }: PortsProps) {
  const facts = useLoad("installation", installation)
  const port = useSignal("8888")
  return (
    <section class="panel" aria-label="Ports">
      <h2>Ports</h2>
      <Answer of={facts}>
        {({ session_domain: domain }) => (
          <>
            <PortForm job={job} port={port} hasDomain={domain !== null} onChange={onChange} />
            {domain === null && <ByCommand job={job.name} port={port.value} />}
          </>
        )}
      </Answer>
    </section>
  )
}

interface PortFormProps extends PortsProps {
  port: { value: string }
  hasDomain: boolean
}

function PortForm({ job: { id }, port, hasDomain, onChange }: PortFormProps) {
  const action = useAction()
  const opened = useSignal<string | undefined>(undefined)
  const open = async (): Promise<void> => {
    opened.value = undefined
    const body = { port: Number(port.value) }
    const { url } = await readBody(client.value.api.POST("/jobs/{id}/sessions", { params: { path: { id } }, body }))
    onChange()
    if (url === null) return
    opened.value = url
    // The page of a job gets no way to this one.
    window.open(url, "_blank", "noopener,noreferrer")
  }
  const submit = (event: Event): void => {
    event.preventDefault()
    if (hasDomain) action.run(open)
  }
  return (
    <form class="opener" aria-label="Open a port" onSubmit={submit}>
      <Field label="Port" hint="The program must listen on 0.0.0.0 in its container.">
        <input
          type="number"
          min={1}
          max={65_535}
          required
          value={port.value}
          onInput={onText((text) => {
            port.value = text
          })}
        />
      </Field>
      {hasDomain && (
        <button type="submit" class="primary" disabled={action.isBusy.value}>
          Open port
        </button>
      )}
      <ActionFault of={action} />
      {opened.value !== undefined && (
        <p class="note" role="status">
          The port opens in a new tab. If your browser has blocked it,{" "}
          <a href={opened.value} target="_blank" rel="noopener noreferrer">
            open it here
          </a>
          . The link works once.
        </p>
      )}
    </form>
  )
}

/** Way to a port without a domain for ports. */
function ByCommand({ job, port }: { job: string; port: string }) {
  const command = `berth forward ${job} ${port}`
  return (
    <>
      <p>
        This command makes it a port of your machine: <code>{command}</code> <Copy text={command} />
      </p>
      <p class="minor">
        An operator of the cluster sets <code>facade.sessions.domain</code> (--session-domain) to open ports here.
      </p>
    </>
  )
}
