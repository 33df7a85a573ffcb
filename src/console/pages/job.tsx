import { useSignal } from "@preact/signals"
import { useRef } from "preact/hooks"
import { useLocation, useRoute } from "preact-iso/router"
import { type JobRecord, readBody } from "../../client/client.ts"
import { needsUser } from "../../client/conditions.ts"
import { IDLE_LIMIT, REUSE } from "../../client/job-grammar.ts"
import { isEnded, readJob } from "../../client/jobs.ts"
import { submittedIdleLimit, submittedReuse } from "../../client/resubmission.ts"
import { usedText } from "../../client/usage.ts"
import { duration, usd } from "../format.ts"
import {
  CancelButton,
  costOf,
  Facts,
  labelsText,
  machineOf,
  PageTitle,
  runTime,
  Status,
  Time,
} from "../parts/basics.tsx"
import { Conditions } from "../parts/conditions.tsx"
import { Answer, type Loaded, useLoad, useReloadOnChange } from "../parts/load.tsx"
import { LogTail } from "../parts/log-tail.tsx"
import { LogViewer } from "../parts/log-viewer.tsx"
import { DependentsChoice, Order } from "../parts/order.tsx"
import { SpecView } from "../parts/spec-view.tsx"
import { Story } from "../parts/story.tsx"
import { Usage } from "../parts/usage.tsx"
import { Workdir } from "../parts/workdir.tsx"
import { at, client, may } from "../state.ts"

const TABS = [
  ["log", "Log"],
  ["story", "What happened"],
  ["usage", "Use"],
  ["spec", "Specification"],
  ["sessions", "Terminal and ports"],
] as const

/** One job: its state, log, story and specification. */
export function JobPage() {
  const { params } = useRoute()
  const id = params["job"] ?? ""
  const job = useLoad(`job ${id}`, (signal) => readJob(client.value, id, signal))
  useReloadOnChange(({ event, ...change }) => {
    if (event !== "job" || !("record" in change)) return false
    const { record } = change
    if (record.id !== job.data.value?.id) return false
    // The event has the record itself: no read is needed.
    if (!("deleted" in record)) job.data.value = record as JobRecord
    return true
  }, job.reload)
  return (
    <>
      {job.data.value === undefined && <PageTitle title={id} />}
      <Answer of={job}>{(record) => <Job job={record} loaded={job} />}</Answer>
    </>
  )
}

function Job({ job, loaded }: { job: JobRecord; loaded: Loaded<JobRecord> }) {
  const { url } = useLocation()
  const wanted = new URL(url, location.origin).searchParams.get("tab")
  const hasLog = job.started_at !== null || job.status === "running"
  const tabs = TABS.filter(([name]) => name !== "sessions" || may("developer"))
  const [tab] = tabs.find(([name]) => name === wanted) ?? (hasLog ? TABS[0] : TABS[1])
  // A terminal stays open behind the other parts.
  const hasSessions = useRef(false)
  hasSessions.current ||= tab === "sessions"
  return (
    <>
      <PageTitle title={job.name}>
        <Actions job={job} loaded={loaded} />
      </PageTitle>
      <Summary job={job} />
      <Order of={job} name={{ job: job.name, array: null }} />
      {job.status === "failed" && job.started_at !== null && <LogTail job={job} />}
      <nav class="tabs" aria-label="Parts of the job">
        {tabs.map(([name, title]) => (
          <a
            key={name}
            href={at(`/jobs/${encodeURIComponent(job.name)}?tab=${name}`)}
            aria-current={tab === name ? "page" : undefined}
          >
            {title}
          </a>
        ))}
      </nav>
      {tab === "log" && <LogViewer key={job.id} job={job} />}
      {tab === "story" && <Story job={job} />}
      {tab === "usage" && <Usage job={job} />}
      {tab === "spec" && <SpecView job={job} />}
      {hasSessions.current && (
        <div class="part" hidden={tab !== "sessions"}>
          <SessionsPart key={job.id} job={job} />
        </div>
      )}
    </>
  )
}

/** Terminal and ports of a job. Their files are large, so a browser loads them only for a reader who opens this part. */
function SessionsPart({ job }: { job: JobRecord }) {
  const part = useLoad("sessions", () => import("../parts/sessions.tsx"))
  return <Answer of={part}>{({ Sessions }) => <Sessions job={job} />}</Answer>
}

function Actions({ job, loaded }: { job: JobRecord; loaded: Loaded<JobRecord> }) {
  const isWithDependents = useSignal(false)
  if (!may("developer")) return null
  const cancel = async (): Promise<void> => {
    const params = { path: { id: job.id }, query: { dependents: isWithDependents.value } }
    await readBody(client.value.api.POST("/jobs/{id}/cancel", { params }))
    loaded.reload()
  }
  const endKept = async (): Promise<void> => {
    await client.value.api.DELETE("/jobs/{id}/debug", { params: { path: { id: job.id } } })
    loaded.reload()
  }
  return (
    <>
      <a class="button" href={at(`/new?from=${encodeURIComponent(job.name)}`)}>
        Run again
      </a>
      <CancelButton of={job.name} action="Cancel the job" isShown={!isEnded(job)} act={cancel}>
        <p>Its machine is deleted. Its log and its cost stay.</p>
        <DependentsChoice id={job.id} kind="job" isChosen={isWithDependents} />
      </CancelButton>
      <CancelButton
        verb="End"
        of={`the kept machine of ${job.name}`}
        action="End the machine"
        isShown={job.kept_until != null}
        act={endKept}
      >
        <p>Its failed container is lost. Its log and its cost stay.</p>
      </CancelButton>
    </>
  )
}

function Message({ job }: { job: JobRecord }) {
  const { message, error_message, status } = job
  if (message === null) return null
  const look = needsUser(job) ? "note trouble" : { failed: "fault", queued: "note" }[status as string]
  return <p class={look}>{error_message ?? message}</p>
}

/** State of a job in a few facts. */
export function Summary({ job }: { job: JobRecord }) {
  const { message, exit_code, hourly_price_usd, labels, tags } = job
  return (
    <section class="panel summary" aria-label="Summary">
      <p class="state">
        <Status of={job.status} />
        {exit_code !== null && <span>exit code {exit_code}</span>}
        {runTime(job) !== "" && <span>{isEnded(job) ? `ran ${runTime(job)}` : `for ${runTime(job)}`}</span>}
      </p>
      <Message job={job} />
      <Conditions of={job.conditions} said={[message]} />
      <Facts
        of={[
          ["Image", <code>{job.image}</code>],
          ["Machine", machineOf(job)],
          ["Price", hourly_price_usd === null ? undefined : `${usd(hourly_price_usd)}/h`],
          ["Cost", costOf(job)],
          ["Needs", needsOf(job)],
          ["Used", usedText(job.usage)],
          ["Timeout", job.timeout_seconds > 0 ? duration(job.timeout_seconds) : undefined],
          ["Idle limit", idleLimitOf(job)],
          ["Reuse", reuseOf(job)],
          ["Keep if failed", job.debug == null ? undefined : duration(job.debug.keep_seconds)],
          ["Machine kept until", job.kept_until == null ? undefined : <Time at={job.kept_until} />],
          ["Place in the line", job.queue_position === null ? undefined : String(job.queue_position)],
          ["Priority", job.priority === 0 ? undefined : String(job.priority)],
          ["Group", job.concurrency_group && `${job.concurrency_group.name}, at most ${job.concurrency_group.limit}`],
          ["Longest wait", job.max_queue_seconds === null ? undefined : duration(job.max_queue_seconds)],
          ["Retries", job.max_retries === 0 ? undefined : `${job.retry_count} of ${job.max_retries}`],
          ["Memory up to", job.max_memory],
          ["Retry rules", retryRulesOf(job)],
          ["New machines after failures", job.new_vm_retries === 0 ? undefined : job.new_vm_retries],
          ["Lost machines", job.max_lost_vms === null ? undefined : `at most ${job.max_lost_vms}`],
          ["Submitted", <Time at={job.created_at} />],
          ["Labels", labelsText(labels)],
          ["Working directory", job.workdir && <Workdir of={job.workdir} />],
          ["Tags", tags.join(", ")],
        ]}
      />
    </section>
  )
}

/** Returns the idle limit of a job as the flag has it; undefined: it has none of its own. */
function idleLimitOf({ idle_limit }: Pick<JobRecord, "idle_limit">): string | undefined {
  const limit = submittedIdleLimit(idle_limit)
  return limit === null ? undefined : IDLE_LIMIT.print(limit)
}

/** Returns the reuse of a job's machine as the flag has it; undefined: it has one of its own. */
function reuseOf({ reuse }: Pick<JobRecord, "reuse">): string | undefined {
  const submitted = submittedReuse(reuse)
  return submitted === null ? undefined : REUSE.print(submitted)
}

/** Returns the retry rules of a job in words; undefined: it has none. */
export function retryRulesOf({ retry_rules }: Pick<JobRecord, "retry_rules">): string | undefined {
  if (retry_rules.length === 0) return undefined
  return retry_rules
    .map(({ reasons, exit_codes, action, limit }) => {
      const codes = exit_codes.length === 0 ? [] : [`exit code ${exit_codes.join(", ")}`]
      const what = [...(reasons.length === 0 ? [] : [reasons.join(", ")]), ...codes].join(", ") || "any failure"
      return `${what}: ${action === "fail" ? "fails" : `new machine, up to ${limit ?? 3} times`}`
    })
    .join("; ")
}

/** Returns the resources that a job asked for. */
export function needsOf({ resources: { cpu, memory, gpu, disk } }: Pick<JobRecord, "resources">): string {
  const cards = gpu === null ? [] : [`GPU ${[gpu.count, gpu.model, gpu.vram].filter((one) => one !== null).join(" ")}`]
  return [`${cpu} vCPU`, memory, ...cards, ...(disk === null ? [] : [`disk ${disk}`])].join(", ")
}
