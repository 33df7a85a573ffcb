import { type JobRecord, readBody, type Schemas } from "../../client/client.ts"
import { ApiError } from "../../client/errors.ts"
import { MOST_SESSIONS } from "../../core/apis/remote-command.ts"
import { whyClosed } from "../sessions/entry.ts"
import { client, me } from "../state.ts"
import { ActionFault, useAction } from "./action.tsx"
import { TableFrame, Time } from "./basics.tsx"
import { Answer, Empty, useLoad, useReloadEvery } from "./load.tsx"
import { PortsPart } from "./ports.tsx"
import { TerminalPart } from "./terminal.tsx"

/** Time between two reads of the list, milliseconds: no event says that a session has begun or ended. */
const RELOAD_MS = 5000

type Session = Schemas["SessionRecord"]

/** Ways into a job's running container, and the sessions that are open. */
export function Sessions({ job }: { job: JobRecord }) {
  const list = useLoad(`sessions ${job.id}`, (signal) => readSessions(job.id, signal))
  useReloadEvery(RELOAD_MS, list.reload)
  if (isDisabled(list.error.value)) return <Empty title="Sessions are off.">{list.error.value.message}</Empty>
  return (
    <Answer of={list}>
      {({ sessions }) => {
        const closed = whyClosed(job) ?? whyFull(sessions.length)
        return (
          <>
            {closed !== undefined && <p class="note">{closed}</p>}
            <TerminalPart job={job} closed={closed} onChange={list.reload} />
            {closed === undefined && <PortsPart job={job} onChange={list.reload} />}
            {sessions.length > 0 && <OpenSessions job={job} sessions={sessions} reload={list.reload} />}
          </>
        )
      }}
    </Answer>
  )
}

function readSessions(id: string, signal: AbortSignal): Promise<Schemas["SessionList"]> {
  return readBody(client.value.api.GET("/jobs/{id}/sessions", { params: { path: { id } }, signal }))
}

function isDisabled(error: unknown): error is ApiError {
  return error instanceof ApiError && error.type === "sessions-disabled"
}

function whyFull(count: number): string | undefined {
  if (count < MOST_SESSIONS) return undefined
  return `${count} of ${MOST_SESSIONS} sessions are open. End one of them to open another.`
}

interface OpenSessionsProps {
  job: Pick<JobRecord, "id">
  sessions: Session[]
  reload: () => void
}

function OpenSessions({ job, sessions, reload }: OpenSessionsProps) {
  return (
    <section>
      <h2>Open sessions ({sessions.length})</h2>
      <TableFrame label="Open sessions">
        <table class="cards">
          <thead>
            <tr>
              <th>Kind</th>
              <th>Opened by</th>
              <th>Since</th>
              <th>Actions</th>
            </tr>
          </thead>
          <tbody>
            {sessions.map((session) => (
              <Row key={session.session_id} job={job} of={session} reload={reload} />
            ))}
          </tbody>
        </table>
      </TableFrame>
    </section>
  )
}

function Row({ job: { id }, of, reload }: Pick<OpenSessionsProps, "job" | "reload"> & { of: Session }) {
  const { session_id, kind, opened_by, opened_at } = of
  const action = useAction()
  const end = async (): Promise<void> => {
    const params = { path: { id, session_id } }
    await client.value.api.DELETE("/jobs/{id}/sessions/{session_id}", { params })
    reload()
  }
  return (
    <tr>
      <td class="row-name" title={session_id}>
        {kind}
      </td>
      <td class="wrapping" data-label="Opened by">
        {opened_by}
        {opened_by === me.value?.id && <span class="tag">you</span>}
      </td>
      <td data-label="Since">
        <Time at={opened_at} isRelative />
      </td>
      <td>
        <button type="button" class="small" disabled={action.isBusy.value} onClick={() => action.run(end)}>
          End
          <span class="hidden">
            {" "}
            the session {kind} of {opened_by}
          </span>
        </button>
        <ActionFault of={action} />
      </td>
    </tr>
  )
}
