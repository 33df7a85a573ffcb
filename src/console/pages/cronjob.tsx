import { useRoute } from "preact-iso/router"
import { readBody, type Schemas } from "../../client/client.ts"
import { nextTicks } from "../cron.ts"
import { duration, timeText } from "../format.ts"
import { AdvicePanel } from "../parts/advice.tsx"
import { Facts, PageTitle, TableFrame, Time } from "../parts/basics.tsx"
import { StateMessage } from "../parts/conditions.tsx"
import { jobsAddress } from "../parts/job-table.tsx"
import { Answer, useLoad, useReloadOnChange } from "../parts/load.tsx"
import { JobDefinition } from "../parts/spec-view.tsx"
import { Workdir } from "../parts/workdir.tsx"
import { client, may } from "../state.ts"
import { CronJobActions, Runs } from "./cronjobs.tsx"

/** One cronjob: its next ticks, last runs and the definition of its jobs. */
export function CronJobPage() {
  const { params } = useRoute()
  const name = params["cronjob"] ?? ""
  const cronJob = useLoad(`cronjob ${name}`, (signal) =>
    readBody(client.value.api.GET("/cronjobs/{name}", { params: { path: { name } }, signal })),
  )
  useReloadOnChange((change) => change.event === "cronjob" && change.record.name === name, cronJob.reload)
  return (
    <>
      <PageTitle title={name}>
        {cronJob.data.value !== undefined && may("developer") && (
          <CronJobActions cronJob={cronJob.data.value} reload={cronJob.reload} />
        )}
      </PageTitle>
      <Answer of={cronJob}>
        {(found) => (
          <>
            <Summary cronJob={found} />
            <section class="panel">
              <h2>Last 30 runs</h2>
              <Runs name={found.name} most={30} />
              <p>
                <a href={jobsAddress({ cronjob: found.name })}>All its jobs</a>
              </p>
            </section>
            <AdvicePanel by={{ cronjob: found.name }} version={found.updated_at} />
            {found.is_active && <Next schedule={found.cron_spec} />}
            <JobDefinition of={found.job_definition} />
          </>
        )}
      </Answer>
    </>
  )
}

/** State of a cronjob in a few facts. */
export function Summary({ cronJob }: { cronJob: Schemas["CronJobRecord"] }) {
  const deadline = cronJob.starting_deadline_seconds
  return (
    <section class="panel" aria-label="Summary">
      <StateMessage of={cronJob} />
      <Facts
        of={[
          ["Schedule (UTC)", <code>{cronJob.cron_spec}</code>],
          ["State", cronJob.is_active ? "active" : "paused"],
          ["Concurrency", cronJob.concurrency_policy],
          ["Starts within", deadline === null ? undefined : duration(deadline)],
          ["Keeps", keptText(cronJob)],
          ["Last run", cronJob.last_triggered_at === null ? "never" : <Time at={cronJob.last_triggered_at} />],
          ["Created", <Time at={cronJob.created_at} />],
          ["Working directory", cronJob.job_definition.workdir && <Workdir of={cronJob.job_definition.workdir} />],
        ]}
      />
    </section>
  )
}

function keptText({ successful_jobs_history_limit, failed_jobs_history_limit }: Schemas["CronJobRecord"]): string {
  return `${successful_jobs_history_limit ?? "all"} succeeded, ${failed_jobs_history_limit ?? "all"} failed`
}

const TICKS = 5

function Next({ schedule }: { schedule: string }) {
  const ticks = nextTicks(schedule, new Date(), TICKS)
  if (ticks.length === 0) return null
  return (
    <section class="panel">
      <h2>Next ticks</h2>
      <TableFrame label="Next ticks">
        <table>
          <thead>
            <tr>
              <th>UTC</th>
              <th>Local</th>
            </tr>
          </thead>
          <tbody>
            {ticks.map((tick) => (
              <tr key={tick.getTime()}>
                <td class="wrapping">{timeText(tick.toISOString(), "utc")}</td>
                <td class="wrapping">{timeText(tick.toISOString(), "local")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </TableFrame>
    </section>
  )
}
