import { type JobRecord, readBody, type Schemas } from "../../client/client.ts"
import { toSubmission } from "../../client/resubmission.ts"
import { duration, secondsBetween, usd } from "../format.ts"
import { client, may, now } from "../state.ts"
import { Facts, Time } from "./basics.tsx"
import { Conditions } from "./conditions.tsx"
import { Answer, Empty, useLoad } from "./load.tsx"
import { PlanTable } from "./plan-table.tsx"

type Timeline = Schemas["Timeline"]
type Launch = Schemas["LaunchRecord"]

/** Events that mean trouble. */
const TROUBLE: readonly string[] = [
  ...["Waiting", "Refused", "Unanswered", "BootFailed", "PreemptionNotice", "TakeoverLost", "Retried", "Lost"],
]

/** Story of a job: the timeline, the choice of the machine, and the machines with their costs. */
export function Story({ job }: { job: JobRecord }) {
  const path = { params: { path: { id: job.id } } }
  // Each change of the record may be a new entry.
  const version = `${job.id} ${job.updated_at}`
  const { api } = client.value
  const readTimeline = (signal: AbortSignal) => readBody(api.GET("/jobs/{id}/timeline", { ...path, signal }))
  const readLaunches = (signal: AbortSignal) => readBody(api.GET("/jobs/{id}/launches", { ...path, signal }))
  const timeline = useLoad(version, readTimeline, job.id)
  const launches = useLoad(version, readLaunches, job.id)
  return (
    <div class="story">
      <section class="panel">
        <h2>Timeline</h2>
        <Answer of={timeline}>{(found) => <Steps timeline={found} job={job} />}</Answer>
      </section>
      <section class="panel">
        <h2>Why this machine</h2>
        <Choice job={job} launches={launches.data.value?.launches ?? []} />
      </section>
      <section class="panel">
        <h2>Machines</h2>
        <CostParts of={job.cost_breakdown} />
        <Answer of={launches}>{(found) => <Machines {...found} />}</Answer>
      </section>
    </div>
  )
}

function Steps({ timeline: { timeline, message }, job }: { timeline: Timeline; job: JobRecord }) {
  const end = job.ended_at ?? new Date(now.value).toISOString()
  const spans = timeline.map(({ at }, index) => Math.max(0, secondsBetween(at, timeline[index + 1]?.at ?? end)))
  const longest = Math.max(1, ...spans)
  return (
    <>
      <ol class="steps">
        {timeline.map((entry, index) => {
          const isLast = index === timeline.length - 1
          const span = spans[index] ?? 0
          return (
            <li key={`${entry.at} ${entry.type}`} class={TROUBLE.includes(entry.type) ? "trouble" : undefined}>
              <span class="minor when">
                <Time at={entry.at} />
              </span>
              <span>
                {entry.message}
                {!(isLast && job.ended_at !== null) && (
                  <span class="span">
                    <i style={{ width: `${(100 * span) / longest}%` }} aria-hidden="true" />
                    <span class="minor">{isLast ? `for ${duration(span)}` : duration(span)}</span>
                  </span>
                )}
              </span>
            </li>
          )
        })}
      </ol>
      {message !== null && <p class="minor">{message}</p>}
    </>
  )
}

/** Reasons for the choice, refused offers, and the ranking at the present prices. */
function Choice({ job, launches }: { job: JobRecord; launches: readonly Launch[] }) {
  const refused = launches.filter(({ refusal }) => refusal !== null)
  const nothingFits = job.reason === "NoOffer"
  return (
    <>
      {job.placement_reason !== null && <p>{job.placement_reason}</p>}
      {job.placement_reason === null && !nothingFits && <p class="minor">No machine has been chosen yet.</p>}
      {nothingFits && job.message !== null && <p class="note trouble">Nearest miss: {job.message}</p>}
      {refused.length > 0 && (
        <>
          <h3>Offers that the cloud refused</h3>
          <ul>
            {refused.map(({ number, provider, instance_type, region, refusal }) => (
              <li key={number}>
                {provider} {instance_type} in {region}: {refusal?.reason}. <span class="minor">{refusal?.message}</span>
              </li>
            ))}
          </ul>
        </>
      )}
      {may("developer") && <Ranking job={job} />}
    </>
  )
}

/** Ranking of the offers for the job's needs, as a new job would get it that waits for no other. */
function Ranking({ job }: { job: JobRecord }) {
  const { after: _, ...body } = toSubmission(job)
  const plan = useLoad(`ranking ${job.id}`, (signal) =>
    readBody(client.value.api.POST("/jobs", { body, params: { query: { dry_run: true } }, signal })),
  )
  return (
    <>
      <h3>Ranking at the present prices</h3>
      <Answer of={plan}>{(found) => ("placements" in found ? <PlanTable plan={found} /> : null)}</Answer>
    </>
  )
}

/** Cost of all machines of the job, by part. */
function CostParts({ of }: { of: JobRecord["cost_breakdown"] }) {
  if (of === null || of.total_usd === 0) return null
  const { machine_usd, disk_usd, address_usd, total_usd, idle_usd } = of
  return (
    <p>
      {usd(total_usd)} in all: {usd(machine_usd)} for machines, {usd(disk_usd)} for disks, {usd(address_usd)} for
      addresses.{idle_usd > 0 && ` Of it, ${usd(idle_usd)} was for the time in which they waited for another job.`}
    </p>
  )
}

function Machines({ launches, message }: { launches: readonly Launch[]; message: string | null }) {
  if (launches.length === 0) return <Empty title={message ?? "No machine was requested yet."} />
  return (
    <>
      {message !== null && <p class="minor">{message}</p>}
      {launches.map((launch) => (
        <Machine key={launch.number} launch={launch} />
      ))}
    </>
  )
}

/** A VM of a job: its machine, its times, and what is wrong with it. */
export function Machine({ launch }: { launch: Launch }) {
  const { number, provider, instance_type, region, zone, phase, refusal, boot_failure, loss, failure } = launch
  const fault = refusal ?? boot_failure ?? loss ?? failure
  return (
    <article class="machine">
      <h3>
        {number}. {provider} {instance_type} <span class="minor">{zone ?? region}</span>
      </h3>
      {fault !== null && (
        <p class="note trouble">
          {fault.reason}: {fault.message}
        </p>
      )}
      <Conditions of={launch.conditions} said={[fault?.message]} />
      <Facts
        of={[
          ["State", phase],
          ["Price", `${usd(launch.hourly_price_usd)}/h ${launch.provisioning === "spot" ? "spot" : "on demand"}`],
          ["Cost", launch.cost_usd === null ? undefined : usd(launch.cost_usd)],
          ["Cost of the wait", launch.idle_usd && usd(launch.idle_usd)],
          ["Took over", launch.took_over],
          ["Waits until", launch.idle_until && <Time at={launch.idle_until} />],
          ["Handed to", launch.handed_to],
          ["Account", launch.connection],
          ["Machine id", launch.vm_instance_id === null ? undefined : <code>{launch.vm_instance_id}</code>],
          ["Address", launch.ip_address],
          ["Requested", <Time at={launch.requested_at} />],
          ["Booted in", between(launch.created_at, launch.registered_at)],
          ["Ran", between(launch.started_at, launch.finished_at)],
          ["Ended", launch.ended_at === null ? undefined : <Time at={launch.ended_at} />],
          ["Exit code", launch.exit_code],
        ]}
      />
    </article>
  )
}

function between(from: string | null, to: string | null): string | undefined {
  return from === null || to === null ? undefined : duration(secondsBetween(from, to))
}
