import { type Signal, useSignal } from "@preact/signals"
import type { ComponentChildren } from "preact"
import { useEffect } from "preact/hooks"
import { useLocation } from "preact-iso/router"
import { fetched, type JobPlan, type JobSubmission } from "../../client/client.ts"
import { readJob } from "../../client/jobs.ts"
import { submissionOf } from "../../client/resubmission.ts"
import { type Draft, type DraftErrors, draftOf, jobOf, type Rest, restOf } from "../draft.ts"
import { Field, PageTitle, typed } from "../parts/basics.tsx"
import { Empty, explained, Fault, fieldErrors, Skeleton } from "../parts/load.tsx"
import { PlanTable } from "../parts/plan-table.tsx"
import { yamlOf } from "../spec.ts"
import { at, client } from "../state.ts"

/** State of the page: the job, as the form or the YAML text has it. */
interface Editor {
  draft: Signal<Draft>
  rest: Signal<Rest>
  /** YAML text; undefined while the form is shown. The API alone reads it, so it means what a file means. */
  yaml: Signal<string | undefined>
  /** Job of the form. */
  job: Signal<JobSubmission>
  errors: Signal<DraftErrors>
}

/** Form of a new job, with the plan of its machine and price while the reader types. */
export function NewJobPage() {
  const { url } = useLocation()
  const from = new URL(url, location.origin).searchParams.get("from")
  const start = useSignal<JobSubmission | undefined>(from === null ? ({ image: "" } as JobSubmission) : undefined)
  const fault = useSignal<unknown>(undefined)
  useEffect(() => {
    if (from === null) return
    readJob(client.value, from).then(
      (job) => {
        start.value = submissionOf(job)
      },
      (error: unknown) => {
        fault.value = error
      },
    )
  }, [from])
  return (
    <>
      <PageTitle title={from === null ? "New job" : `Run ${from} again`} />
      {fault.value !== undefined && <Fault error={fault.value} />}
      {start.value !== undefined ? <Form start={start.value} /> : fault.value === undefined && <Skeleton />}
    </>
  )
}

function useEditor(start: JobSubmission): Editor {
  const draft = useSignal(draftOf(start))
  const rest = useSignal(restOf(start))
  const yaml = useSignal<string | undefined>(undefined)
  const job = useSignal(start)
  const errors = useSignal<DraftErrors>({})
  return { draft, rest, yaml, job, errors }
}

function Form({ start }: { start: JobSubmission }) {
  const editor = useEditor(start)
  const plan = usePlan(editor)
  const { route } = useLocation()
  const isBusy = useSignal(false)
  const fault = useSignal<unknown>(undefined)
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault()
    isBusy.value = true
    fault.value = undefined
    try {
      const answer = await fetched(client.value.api.POST("/jobs", bodyOf(editor)))
      if ("job_id" in answer) route(at(`/jobs/${encodeURIComponent(answer.name)}`))
    } catch (error) {
      fault.value = error
    }
    isBusy.value = false
  }
  const errors = { ...draftErrors(plan.fault.value), ...draftErrors(fault.value), ...editor.errors.value }
  const { verdict } = plan.plan.value ?? {}
  const isReady = isReadyOf(editor)
  return (
    <form class="new-job" onSubmit={(event) => void submit(event)}>
      <div class="new-job-fields">
        <ModeChoice editor={editor} isAccepted={plan.isAccepted} />
        {editor.yaml.value === undefined ? <Fields editor={editor} errors={errors} /> : <YamlEditor editor={editor} />}
      </div>
      <aside class="panel plan" aria-label="Plan">
        <h2>Plan and price</h2>
        <Plan plan={plan} isReady={isReady} />
        {fault.value !== undefined && <Fault error={fault.value} />}
        <button type="submit" class="primary wide" disabled={!isReady || isBusy.value}>
          {verdict === "noOffer" ? "Submit anyway" : "Submit the job"}
        </button>
      </aside>
    </form>
  )
}

function isReadyOf({ errors, yaml, job }: Editor): boolean {
  if (yaml.value !== undefined) return yaml.value.trim() !== ""
  return Object.keys(errors.value).length === 0 && job.value.image !== ""
}

/** Returns the body of a submission or a plan, with the options that send a YAML text as it is. */
function bodyOf({ yaml, job }: Editor) {
  if (yaml.value === undefined) return { body: job.value }
  return {
    body: yaml.value as unknown as JobSubmission,
    bodySerializer: String,
    headers: { "Content-Type": "application/yaml" },
  }
}

/** Time without typing after which a plan is asked for, milliseconds. */
const PAUSE_MS = 400

/** Asks for the plan of the job, after the reader has paused. */
function usePlan(editor: Editor) {
  const plan = useSignal<JobPlan | undefined>(undefined)
  const fault = useSignal<unknown>(undefined)
  const isAsking = useSignal(false)
  /** Body that the last plan is for. */
  const planned = useSignal<string | undefined>(undefined)
  const body = editor.yaml.value ?? JSON.stringify(editor.job.value)
  const isReady = isReadyOf(editor)
  useEffect(() => {
    if (!isReady) return
    const stop = new AbortController()
    const { signal } = stop
    const ask = async (): Promise<void> => {
      isAsking.value = true
      try {
        const init = { ...bodyOf(editor), params: { query: { dry_run: true } }, signal }
        const answer = await fetched(client.value.api.POST("/jobs", init))
        if ("placements" in answer) plan.value = answer
        planned.value = body
        fault.value = undefined
      } catch (error) {
        if (signal.aborted) return
        plan.value = undefined
        fault.value = error
      }
      isAsking.value = false
    }
    const timer = setTimeout(() => void ask(), PAUSE_MS)
    return () => {
      clearTimeout(timer)
      stop.abort()
    }
  }, [body, isReady])
  return { plan, fault, isAsking, isAccepted: planned.value === body && fault.value === undefined }
}

function Plan({ plan: { plan, fault, isAsking }, isReady }: { plan: ReturnType<typeof usePlan>; isReady: boolean }) {
  if (!isReady) return <Empty title="Name an image to see machines and prices." />
  return (
    <div aria-live="polite" aria-busy={isAsking.value} class={isAsking.value ? "stale" : undefined}>
      {fault.value !== undefined && <p class="fault">{explained(fault.value).text}</p>}
      {plan.value !== undefined && <PlanTable plan={plan.value} />}
      {plan.value === undefined && fault.value === undefined && <Skeleton />}
    </div>
  )
}

/** Switches between the form and the YAML text. Both are the same job. The form gets a text that the API has accepted. */
function ModeChoice({ editor, isAccepted }: { editor: Editor; isAccepted: boolean }) {
  const { yaml, job, draft, rest, errors } = editor
  const isYaml = yaml.value !== undefined
  const toForm = async (): Promise<void> => {
    const text = yaml.value ?? ""
    const { CORE_SCHEMA, load } = await import("js-yaml")
    // A later text has been typed meanwhile.
    if (yaml.value !== text) return
    job.value = load(text, { schema: CORE_SCHEMA }) as JobSubmission
    errors.value = {}
    draft.value = draftOf(job.value)
    rest.value = restOf(job.value)
    yaml.value = undefined
  }
  return (
    <fieldset class="choice">
      <legend class="hidden">Edit as</legend>
      <label>
        <input
          type="radio"
          name="mode"
          checked={!isYaml}
          disabled={isYaml && !isAccepted}
          onChange={() => void toForm()}
        />
        Form
      </label>
      <label>
        <input
          type="radio"
          name="mode"
          checked={isYaml}
          onChange={() => {
            yaml.value = yamlOf(job.value)
          }}
        />
        YAML
      </label>
    </fieldset>
  )
}

function YamlEditor({ editor: { yaml } }: { editor: Editor }) {
  return (
    <Field label="Body of POST /jobs">
      <textarea
        class="code"
        rows={24}
        spellcheck={false}
        value={yaml.value}
        onInput={typed((text) => {
          yaml.value = text
        })}
      />
    </Field>
  )
}

interface FieldsProps {
  editor: Editor
  errors: DraftErrors
}

function Fields({ editor, errors }: FieldsProps) {
  const { draft, rest } = editor
  const set = (name: keyof Draft) => (value: string) => {
    draft.value = { ...draft.value, [name]: value }
    const read = jobOf(draft.value, rest.value)
    editor.job.value = read.job
    editor.errors.value = read.errors
  }
  const line = (name: keyof Draft, label: string, hint?: string, placeholder?: string) => (
    <Field label={label} hint={hint} error={errors[name]}>
      <input
        name={name}
        value={draft.value[name]}
        placeholder={placeholder}
        spellcheck={false}
        autocomplete="off"
        required={name === "image"}
        onInput={typed(set(name))}
      />
    </Field>
  )
  const area = (name: keyof Draft, label: string, hint: string) => (
    <Field label={label} hint={hint} error={errors[name]}>
      <textarea name={name} rows={2} spellcheck={false} value={draft.value[name]} onInput={typed(set(name))} />
    </Field>
  )
  return (
    <>
      <Group title="Container">
        {line("image", "Image", undefined, "ghcr.io/acme/train:3")}
        {line("name", "Name", "Empty: Berth chooses one.")}
        {line("command", "Command", "Empty: the image's own entrypoint.")}
        {line("args", "Arguments", undefined, '--epochs 10 --note "two words"')}
      </Group>
      <Group title="Machine">
        {line("cpu", "vCPU", undefined, "1")}
        {line("memory", "Memory", undefined, "2Gi")}
        {line("gpu", "GPU", "A model (L4), two of it (L4:2), or memory (24Gi).")}
        {line("disk", "Disk", undefined, "50Gi")}
        {line("region", "Regions", "Such as eu, or us-east-1. Empty: any.")}
        {line("cloud", "Clouds", "aws, gcp, azure. Empty: any.")}
        <Field label="Buy" error={errors.provisioning}>
          <select value={draft.value.provisioning} onChange={typed(set("provisioning"))}>
            <option value="">on demand</option>
            <option value="spot">spot</option>
            <option value="spotFirst">spot first, else on demand</option>
          </select>
        </Field>
      </Group>
      <Group title="Limits">
        {line("timeout", "Timeout", undefined, "2h")}
        {line("maxQueue", "Longest wait", "Until the container starts. Empty: no limit.", "30m")}
        {line("maxRetries", "Retries", undefined, "0")}
        {line("maxHourlyPriceUsd", "Highest price, $/h")}
        {line("maxCostUsd", "Highest cost, $")}
      </Group>
      <Group title="Environment and labels" isOpen={draft.value.env + draft.value.labels !== ""}>
        {area("env", "Environment", "NAME=value, one a line.")}
        {area("secretEnv", "Secrets", "NAME=secret:key, one a line.")}
        {area(
          "volumes",
          "Buckets",
          "name=bucket/prefix:/path, one a line. Add @connection, or checkpoint after a space, if needed.",
        )}
        {area("labels", "Labels", "key=value, one a line.")}
        {line("tags", "Tags", "Separated by spaces.")}
      </Group>
    </>
  )
}

function Group({ title, isOpen = true, children }: { title: string; isOpen?: boolean; children: ComponentChildren }) {
  return (
    <details class="panel group" open={isOpen}>
      <summary>
        <h2>{title}</h2>
      </summary>
      <div class="fields">{children}</div>
    </details>
  )
}

/** Fields of the form, by the last name in the API's pointer. */
const RENAMED: Record<string, keyof Draft> = {
  timeoutSeconds: "timeout",
  maxQueueSeconds: "maxQueue",
  namePrefix: "name",
}

/** Returns the API's errors by the field of the form. */
function draftErrors(error: unknown): DraftErrors {
  return Object.fromEntries(
    fieldErrors(error).map(({ field, detail }) => {
      const [first = "", second] = field.split(".")
      const name = first === "resources" && second !== undefined ? second : first
      return [RENAMED[name] ?? name, detail]
    }),
  )
}
