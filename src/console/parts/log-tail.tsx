import type { JobRecord } from "../../client/client.ts"
import { readLogTail } from "../../client/logs.ts"
import { client } from "../state.ts"
import { useLoad } from "./load.tsx"

/** End of a failed job's log, under its error. Nothing if there is no log, or if it can't be read: the log's tab says why. */
export function LogTail({ job }: { job: JobRecord }) {
  const tail = useLoad(`tail ${job.id} ${job.ended_at}`, (signal) => readLogTail(client.value, job.id, signal))
  if (tail.data.value === undefined || tail.data.value === "") return null
  return (
    <section class="panel" aria-label="End of its log">
      <h2>End of its log</h2>
      <pre class="log-tail">{tail.data.value}</pre>
    </section>
  )
}
