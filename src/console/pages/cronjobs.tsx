import { useSignal } from "@preact/signals"
import { type JobRecord, readBody, type Schemas } from "../../client/client.ts"
import { nextTicks } from "../cron.ts"
import { ActionFault, buttonsOf, useAction } from "../parts/action.tsx"
import { PageTitle, TableFrame, Time } from "../parts/basics.tsx"
import { Answer, Empty, useLoad, useReloadOnChange } from "../parts/load.tsx"
import { Pages, SearchBar, useSearch } from "../parts/pages.tsx"
import { at, client, may } from "../state.ts"

type CronJob = Schemas["CronJobRecord"]

/** Cronjobs of the project, with their next ticks and last runs. */
export function CronJobsPage() {
  const cronJobs = useSearch("/cronjobs", (query, signal) =>
    readBody(client.value.api.GET("/cronjobs", { params: { query }, signal })),
  )
  useReloadOnChange(({ event }) => event === "cronjob", cronJobs.reload)
  return (
    <>
      <PageTitle title="Cronjobs" />
      <SearchBar of={cronJobs} what="cronjobs" />
      <Answer of={cronJobs}>
        {({ cronjobs, total }) =>
          total === 0 && cronJobs.search.name !== "" ? (
            <Empty title="No cronjob has this in its name." />
          ) : total === 0 ? (
            <Empty title="This project has no cronjobs.">
              <p>
                {may("developer") && <a href={at("/new?as=cronjob")}>Create one</a>} <code>berth apply -f</code>,
                kubectl and the REST API make them too.
              </p>
            </Empty>
          ) : (
            <>
              <TableFrame label="Cronjobs">
                <table class="cards">
                  <thead>
                    <tr>
                      <th>Cronjob</th>
                      <th>Schedule (UTC)</th>
                      <th>State</th>
                      <th>Next</th>
                      <th>Last runs</th>
                      {may("developer") && <th>Actions</th>}
                    </tr>
                  </thead>
                  <tbody>
                    {cronjobs.map((cronJob) => (
                      <Row key={cronJob.id} cronJob={cronJob} reload={cronJobs.reload} />
                    ))}
                  </tbody>
                </table>
              </TableFrame>
              <Pages of={cronJobs} shown={cronjobs.length} total={total} isNewestFirst={cronJobs.search.order === ""} />
            </>
          )
        }
      </Answer>
    </>
  )
}

function Row({ cronJob, reload }: { cronJob: CronJob; reload: () => void }) {
  const [next] = nextTicks(cronJob.cron_spec, new Date(), 1)
  return (
    <tr>
      <td class="row-name">
        <a href={at(`/cronjobs/${encodeURIComponent(cronJob.name)}`)}>{cronJob.name}</a>
      </td>
      <td data-label="Schedule (UTC)">
        <code>{cronJob.cron_spec}</code>
      </td>
      <td>
        {cronJob.is_active ? "active" : "paused"}
        {cronJob.reason !== null && <span class="minor"> {cronJob.reason}</span>}
      </td>
      <td data-label="Next">
        {cronJob.is_active && next !== undefined && <Time at={next.toISOString()} isRelative />}
      </td>
      <td data-label="Last runs">
        <Runs name={cronJob.name} most={10} />
      </td>
      {may("developer") && (
        <td>
          <CronJobActions cronJob={cronJob} reload={reload} />
        </td>
      )}
    </tr>
  )
}

/** Buttons that pause, resume and run a cronjob. */
export function CronJobActions({ cronJob: { name, is_active }, reload }: { cronJob: CronJob; reload: () => void }) {
  const action = useAction()
  const act = (ask: () => Promise<unknown>) => () => action.run(() => ask().then(reload))
  const change = () =>
    readBody(
      client.value.api.PATCH("/cronjobs/{name}", { params: { path: { name } }, body: { is_active: !is_active } }),
    )
  const begun = useSignal<string | undefined>(undefined)
  const run = async () => {
    begun.value = undefined
    const job = await readBody(client.value.api.POST("/cronjobs/{name}/run", { params: { path: { name } } }))
    begun.value = job.name
  }
  const button = buttonsOf(name, action)
  return (
    <div class="actions">
      {button(is_active ? "Pause" : "Resume", act(change))}
      <button type="button" class="small" disabled={action.isBusy.value} onClick={act(run)}>
        Run now<span class="hidden">: {name}</span>
      </button>
      <span class="minor" role="status">
        {begun.value !== undefined && (
          <>
            Created <a href={at(`/jobs/${encodeURIComponent(begun.value)}`)}>{begun.value}</a>.
          </>
        )}
      </span>
      <ActionFault of={action} />
    </div>
  )
}

/** Strip of the last runs, the newest at the right. */
export function Runs({ name, most }: { name: string; most: number }) {
  const runs = useLoad(`runs ${name}`, (signal) =>
    readBody(client.value.api.GET("/jobs", { params: { query: { cronjob: name, limit: most } }, signal })),
  )
  useReloadOnChange((change) => change.event === "job" && change.record.name.startsWith(name), runs.reload)
  const jobs: JobRecord[] = runs.data.value?.jobs ?? []
  if (jobs.length === 0) return <span class="minor">{runs.data.value === undefined ? "" : "none"}</span>
  return (
    <ol class="runs" aria-label={`Last runs of ${name}`}>
      {jobs.toReversed().map((job) => (
        <li key={job.id}>
          <a
            class={`run ${job.status}`}
            href={at(`/jobs/${encodeURIComponent(job.name)}`)}
            title={`${job.name}: ${job.status}`}
          >
            <span class="hidden">
              {job.name}: {job.status}
            </span>
          </a>
        </li>
      ))}
    </ol>
  )
}
