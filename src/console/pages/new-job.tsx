import { type Signal, useComputed, useSignal } from "@preact/signals"
import type { ComponentChildren } from "preact"
import { useEffect, useRef } from "preact/hooks"
import { useLocation } from "preact-iso/router"
import { randomKey } from "../../client/client.ts"
import { costReport } from "../../client/costs.ts"
import { readJob } from "../../client/jobs.ts"
import { CLOUDS } from "../../client/providers.ts"
import { toSubmission } from "../../client/resubmission.ts"
import { nextTicks } from "../cron.ts"
import {
  type Errors,
  type Form,
  fillForm,
  keptIn,
  type Name,
  nameFor,
  neededIn,
  placed,
  readForm,
  type Shape,
} from "../draft.ts"
import { zonedText } from "../format.ts"
import { AfterInput } from "../parts/after-input.tsx"
import { Field, onText, PageTitle } from "../parts/basics.tsx"
import { Empty, errorText, Fault, fieldErrors, Skeleton, useLoad } from "../parts/load.tsx"
import { PlanTable } from "../parts/plan-table.tsx"
import { type AnyPlan, capNotes, jobPlanOf, sumOf } from "../plan.ts"
import { toYaml } from "../spec.ts"
import { at, client } from "../state.ts"

/** Shapes of the form: their words, the path of their operation, and the part of an address of the console. */
const SHAPES: Record<Shape, { title: string; path: string }> = {
  job: { title: "Once", path: "/jobs" },
  array: { title: "Repeat with values", path: "/arrays" },
  cronjob: { title: "On a schedule", path: "/cronjobs" },
}

/** State of the page: what it makes, as the form or the YAML text has it. */
interface Editor {
  shape: Signal<Shape>
  form: Signal<Form>
  /** YAML text; undefined while the form is shown. The API alone reads it, so it means what a file means. */
  yaml: Signal<string | undefined>
  /** YAML text that the form was shown as. Without a change the form is still the same, also one that the API rejects. */
  printed: { current: string }
  /** End of the name of an object without one. */
  end: string
  /** True once the reader has changed something. */
  isTouched: Signal<boolean>
}

/** Form of a new job, array or cronjob, with the plan of its machine and price while the reader types. */
export function NewJobPage() {
  const { url } = useLocation()
  const { searchParams } = new URL(url, location.origin)
  const from = searchParams.get("from")
  const as = searchParams.get("as")
  const shape = as === "array" || as === "cronjob" ? as : "job"
  const start = useSignal<object | undefined>(from === null ? {} : undefined)
  const fault = useSignal<unknown>(undefined)
  useEffect(() => {
    if (from === null) return
    readJob(client.value, from).then(
      (job) => {
        start.value = toSubmission(job)
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
      {start.value !== undefined ? (
        <Editing start={start.value} shape={shape} isTouched={from !== null} />
      ) : (
        fault.value === undefined && <Skeleton />
      )}
    </>
  )
}

/** Returns what the form means now. */
function meaningOf({ shape, form, end }: Editor) {
  const { draft } = form.value
  const name = nameFor(draft.image, end)
  return { name, needed: neededIn(shape.value, draft), ...readForm(shape.value, form.value, name) }
}

function Editing({ start, shape: first, isTouched }: { start: object; shape: Shape; isTouched: boolean }) {
  const editor: Editor = {
    shape: useSignal(first),
    form: useSignal(fillForm("job", { ...start })),
    yaml: useSignal<string | undefined>(undefined),
    printed: useRef(""),
    end: useRef(randomKey().slice(0, 4)).current,
    isTouched: useSignal(isTouched),
  }
  const { shape, form, yaml } = editor
  const meaning = useComputed(() => meaningOf(editor)).value
  const body = yaml.value ?? JSON.stringify(meaning.body)
  const plan = usePlan(editor, body)
  const submission = useSubmission(editor, body)
  const isYaml = yaml.value !== undefined
  const ofApi = placed(shape.value, fieldErrors(submission.fault ?? plan.fault))
  // An empty field is named as missing, and isn't an error before the reader has come to it.
  for (const name of meaning.needed) delete ofApi.errors[name]
  const errors: Errors = isYaml ? {} : { ...ofApi.errors, ...meaning.errors }
  const isReady = isYaml
    ? yaml.value?.trim() !== ""
    : meaning.needed.length === 0 && Object.keys(meaning.errors).length === 0
  const budgets = useLoad("budgets", () => costReport(client.value, {}))
  return (
    <form class="new-job" onSubmit={submission.submit}>
      <div class="new-job-fields">
        <Choices editor={editor} isAccepted={plan.isAccepted} />
        {isYaml ? (
          <YamlEditor editor={editor} />
        ) : (
          <Fields editor={editor} errors={errors} kept={keptIn(shape.value, form.value)} unnamed={meaning.name} />
        )}
      </div>
      <aside class="panel plan" aria-label="Plan">
        <h2>Plan and price</h2>
        <div aria-live="polite" aria-busy={plan.isAsking} class={plan.isAsking ? "stale" : undefined}>
          {isYaml ? (
            plan.fault !== undefined && <p class="fault">{errorText(plan.fault).text}</p>
          ) : (
            <Missing needed={meaning.needed} errors={errors} others={ofApi.others} fault={plan.fault} />
          )}
          {plan.plan !== undefined && isReady && plan.fault === undefined && (
            <>
              {sumOf(plan.plan).map((sentence) => (
                <p key={sentence}>{sentence}</p>
              ))}
              {capNotes(plan.plan, budgets.data.value?.budgets ?? []).map((note) => (
                <p key={note} class="note">
                  {note}
                </p>
              ))}
              <PlanTable plan={jobPlanOf(plan.plan)} />
            </>
          )}
          {plan.plan === undefined && plan.fault === undefined && isReady && <Skeleton />}
        </div>
        {submission.fault !== undefined && <Fault error={submission.fault} />}
        <button type="submit" class="primary wide" disabled={!isReady || submission.isBusy}>
          {actionOf(shape.value, plan.plan)}
        </button>
      </aside>
    </form>
  )
}

/** Returns the words of the button. */
function actionOf(shape: Shape, plan: AnyPlan | undefined): string {
  if (plan !== undefined && jobPlanOf(plan).verdict === "noOffer") return "Submit anyway"
  if (shape === "cronjob") return "Create the cronjob"
  if (shape === "job") return "Submit the job"
  return plan === undefined || !("size" in plan) ? "Submit the jobs" : `Submit ${plan.size} jobs`
}

/** Fields that are missing or wrong, all at once, and errors of parts that the form doesn't show. */
function Missing({
  needed,
  errors,
  others,
  fault,
}: {
  needed: readonly Name[]
  errors: Errors
  others: readonly string[]
  fault: unknown
}) {
  // In the order of the form.
  const wrong = (Object.keys(LABELS) as Name[]).filter((name) => errors[name] !== undefined)
  const isOfFields = fieldErrors(fault).length > 0
  return (
    <>
      {wrong.length > 0 && (
        <p class="fault">Correct {listText(wrong)} to see machines and prices. Each field says what is wrong.</p>
      )}
      {others.length > 0 && <p class="fault">{others.join(" · ")}</p>}
      {fault !== undefined && !isOfFields && <p class="fault">{errorText(fault).text}</p>}
      {needed.length > 0 && <Empty title={`Fill in ${listText(needed)} to see machines and prices.`} />}
    </>
  )
}

function listText(names: readonly Name[]): string {
  return names.map((name) => LABELS[name]).join(", ")
}

/** Time without typing after which a plan is asked for, milliseconds. */
const PAUSE_MS = 400

interface Sending {
  signal?: AbortSignal
  key?: string
  isDryRun?: boolean
}

/** Sends a body to the operation of its shape. A YAML text is sent as it is. @throws ApiError, Unreachable */
async function send({ shape, yaml }: Editor, body: string, { signal, key, isDryRun }: Sending): Promise<object> {
  const { path } = SHAPES[shape.value]
  const request = new Request(`${client.value.baseUrl}${path}${isDryRun ? "?dry_run=true" : ""}`, {
    method: "POST",
    body,
    headers: {
      "Content-Type": yaml.value === undefined ? "application/json" : "application/yaml",
      ...(key !== undefined && { "Idempotency-Key": key }),
    },
    ...(signal !== undefined && { signal }),
  })
  const response = await client.value.send(request)
  return (await response.json()) as object
}

/** Asks for the plan after the reader has paused. Parts that can't be read are left out, so the API checks the others. */
function usePlan(editor: Editor, body: string) {
  const plan = useSignal<AnyPlan | undefined>(undefined)
  const fault = useSignal<unknown>(undefined)
  const isAsking = useSignal(false)
  /** Text that the last plan is for. */
  const planned = useSignal<string | undefined>(undefined)
  const subject = `${editor.shape.value} ${body}`
  const isTouched = editor.isTouched.value
  useEffect(() => {
    if (!isTouched) return
    const stop = new AbortController()
    const { signal } = stop
    const ask = async (): Promise<void> => {
      isAsking.value = true
      try {
        const answer = (await send(editor, body, { signal, isDryRun: true })) as AnyPlan
        if (signal.aborted) return
        plan.value = answer
        fault.value = undefined
      } catch (error) {
        if (signal.aborted) return
        plan.value = undefined
        fault.value = error
      }
      planned.value = subject
      isAsking.value = false
    }
    const timer = setTimeout(() => void ask(), PAUSE_MS)
    return () => {
      clearTimeout(timer)
      stop.abort()
    }
  }, [subject, isTouched])
  const isOfShape = planned.value?.startsWith(`${editor.shape.value} `) === true
  return {
    plan: isOfShape ? plan.value : undefined,
    fault: isOfShape ? fault.value : undefined,
    isAsking: isAsking.value,
    isAccepted: planned.value === subject && fault.value === undefined,
  }
}

/** Submits once for each intent: the same body has the same Idempotency-Key, however often it is sent. */
function useSubmission(editor: Editor, body: string) {
  const { route } = useLocation()
  const isBusy = useSignal(false)
  const fault = useSignal<{ of: string; error: unknown } | undefined>(undefined)
  const subject = `${editor.shape.value} ${body}`
  const intent = useRef({ subject, key: randomKey() })
  if (intent.current.subject !== subject) intent.current = { subject, key: randomKey() }
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault()
    if (isBusy.value) return
    isBusy.value = true
    fault.value = undefined
    try {
      const { name } = (await send(editor, body, { key: intent.current.key })) as { name: string }
      route(at(`${SHAPES[editor.shape.value].path}/${encodeURIComponent(name)}`))
    } catch (error) {
      fault.value = { of: subject, error }
    }
    isBusy.value = false
  }
  return {
    submit: (event: Event) => void submit(event),
    isBusy: isBusy.value,
    // A change of the body may have corrected it.
    fault: fault.value?.of === subject ? fault.value.error : undefined,
  }
}

/**
 * Chooses the shape, and form or YAML text. All are the same object, and the texts of each shape stay. The form gets a text
 * that the API has accepted.
 */
function Choices({ editor, isAccepted }: { editor: Editor; isAccepted: boolean }) {
  const { shape, form, yaml, printed, isTouched } = editor
  const isYaml = yaml.value !== undefined
  const isLocked = isYaml && !isAccepted && yaml.value !== printed.current
  const readYaml = async (): Promise<boolean> => {
    const text = yaml.value ?? ""
    if (text === printed.current) {
      yaml.value = undefined
      return true
    }
    const { CORE_SCHEMA, load } = await import("../yaml.ts")
    // A later text has been typed meanwhile.
    if (yaml.value !== text) return false
    form.value = fillForm(shape.value, load(text, { schema: CORE_SCHEMA }) as Record<string, unknown>, form.value)
    yaml.value = undefined
    return true
  }
  const showYaml = (): void => {
    printed.current = toYaml(meaningOf(editor).body)
    yaml.value = printed.current
  }
  const choose = async (next: Shape): Promise<void> => {
    const wasYaml = yaml.value !== undefined
    if (wasYaml && !(await readYaml())) return
    shape.value = next
    isTouched.value = true
    if (wasYaml) showYaml()
  }
  return (
    <div class="choices">
      <fieldset class="choice">
        <legend class="hidden">Run</legend>
        {(Object.keys(SHAPES) as Shape[]).map((one) => (
          <label key={one}>
            <input
              type="radio"
              name="shape"
              checked={shape.value === one}
              disabled={isLocked && shape.value !== one}
              onChange={() => void choose(one)}
            />
            {SHAPES[one].title}
          </label>
        ))}
      </fieldset>
      <fieldset class="choice">
        <legend class="hidden">Edit as</legend>
        <label>
          <input type="radio" name="mode" checked={!isYaml} disabled={isLocked} onChange={() => void readYaml()} />
          Form
        </label>
        <label>
          <input type="radio" name="mode" checked={isYaml} onChange={showYaml} />
          YAML
        </label>
      </fieldset>
    </div>
  )
}

function YamlEditor({ editor: { shape, yaml, isTouched } }: { editor: Editor }) {
  return (
    <Field label={`Body of POST ${SHAPES[shape.value].path}`}>
      <textarea
        class="code"
        rows={24}
        spellcheck={false}
        value={yaml.value}
        onInput={onText((text) => {
          yaml.value = text
          isTouched.value = true
        })}
      />
    </Field>
  )
}

const LABELS: Record<Name, string> = {
  values: "Values",
  parallelism: "Jobs at the same time",
  maxFailed: "Failures accepted",
  after: "After",
  schedule: "Schedule (UTC)",
  concurrency: "If the earlier job still runs",
  deadline: "Longest delay of a start",
  keepSucceeded: "Succeeded jobs to keep",
  keepFailed: "Failed jobs to keep",
  image: "Image",
  name: "Name",
  command: "Command",
  args: "Arguments",
  cpu: "vCPU",
  memory: "Memory",
  disk: "Disk",
  gpu: "GPU",
  region: "Regions",
  cloud: "Clouds",
  provisioning: "Buy",
  timeout: "Timeout",
  idleLimit: "Idle limit",
  reuse: "Reuse",
  debugKeep: "Keep if failed",
  maxQueue: "Longest wait",
  maxRetries: "Retries",
  priority: "Priority",
  group: "Group",
  retryOn: "New machine after exit codes",
  maxMemory: "Memory grows to",
  maxLostVms: "Lost machines",
  maxHourlyPriceUsd: "Highest price, $/h",
  maxCostUsd: "Highest cost, $",
  env: "Environment",
  secretEnv: "Secrets",
  volumes: "Buckets",
  labels: "Labels",
  tags: "Tags",
}

interface FieldsProps {
  editor: Editor
  errors: Errors
  kept: readonly Name[]
  /** Name of an object without one. */
  unnamed: string
}

function Fields({ editor, errors, kept, unnamed }: FieldsProps) {
  const { form, shape, isTouched } = editor
  const { draft } = form.value
  const set = (name: Name) => (value: string) => {
    form.value = { ...form.value, draft: { ...form.value.draft, [name]: value } }
    isTouched.value = true
  }
  const fieldOf = (name: Name, hint?: string) => ({
    label: LABELS[name],
    error: errors[name],
    hint: kept.includes(name) ? "It has a value that only the YAML shows." : hint,
  })
  const line = (name: Name, hint?: string, placeholder?: string) => (
    <Field {...fieldOf(name, hint)}>
      <input
        name={name}
        value={draft[name]}
        placeholder={placeholder}
        spellcheck={false}
        autocomplete="off"
        required={neededIn(shape.value, draft).includes(name)}
        onInput={onText(set(name))}
      />
    </Field>
  )
  const area = (name: Name, hint: string, placeholder?: string) => (
    <Field {...fieldOf(name, hint)}>
      <textarea
        name={name}
        rows={2}
        spellcheck={false}
        placeholder={placeholder}
        value={draft[name]}
        onInput={onText(set(name))}
      />
    </Field>
  )
  const after = (
    <Field {...fieldOf("after", "Such as prepare, array/sweep. They must succeed first, or add :ended or :failed.")}>
      <AfterInput value={draft.after} set={set("after")} />
    </Field>
  )
  const choice = (name: Name, options: Record<string, string>) => (
    <Field {...fieldOf(name)}>
      <select value={draft[name]} onChange={onText(set(name))}>
        {Object.entries(options).map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </Field>
  )
  return (
    <>
      {shape.value === "array" && (
        <Group title="Values">
          <div class="whole">
            {area(
              "values",
              "One variable a line, and one job for each combination. A value with blanks or commas needs quotes. Or only a number of jobs, such as 100.",
              "LEARNING_RATE=0.1,0.01\nSEED=1..15",
            )}
          </div>
          {line("parallelism", undefined, "10")}
          {line("maxFailed", "After one more, no job is created. Empty: any number.")}
          {after}
        </Group>
      )}
      {shape.value === "cronjob" && (
        <Group title="Schedule">
          <div class="whole">
            {line("schedule", "Minute, hour, day of month, month, day of week; or @daily.", "30 3 * * MON-FRI")}
            <Ticks schedule={draft.schedule} />
          </div>
          {choice("concurrency", {
            "": "run both",
            Forbid: "wait for its end",
            Replace: "cancel the earlier one",
          })}
          {line("deadline", "A later start is skipped. Empty: none is.", "10m")}
          {line("keepSucceeded", "Empty: all.")}
          {line("keepFailed", "Empty: all.")}
        </Group>
      )}
      <Group title="Container">
        {line("image", undefined, "ghcr.io/acme/train:3")}
        {shape.value === "job" ? line("name", "Empty: Berth chooses one.") : line("name", "Empty: as shown.", unnamed)}
        {line("command", "Empty: the image's own entrypoint.")}
        {line("args", undefined, '--epochs 10 --note "two words"')}
      </Group>
      <Group title="Machine">
        {line("cpu", undefined, "1")}
        {line("memory", undefined, "2Gi")}
        {line("gpu", "A model (L4), two of it (L4:2), or memory (24Gi).")}
        {line("disk", undefined, "50Gi")}
        {line("region", "Such as eu, or us-east-1. Empty: any.")}
        {line("cloud", `${CLOUDS.join(", ")}. Empty: any.`)}
        {line("reuse", "Time that it waits for another job; with :key for some only.", "5m")}
        {choice("provisioning", { "": "on demand", spot: "spot", spotFirst: "spot first, else on demand" })}
      </Group>
      <Group title={shape.value === "job" ? "Limits" : "Limits of each job"}>
        {line("timeout", undefined, "2h")}
        {line("idleLimit", "Time without use after which the job fails.", "30m")}
        {line("debugKeep", "Time that the machine is kept for berth debug after a failure.", "1h")}
        {line("maxQueue", "Until the container starts. Empty: no limit.", "30m")}
        {shape.value === "job" && after}
        {line("priority", "From -100 to 100. The highest starts first where jobs wait for a cap.", "0")}
        {line("group", "Its name, and how many of its jobs run at the same time.", "db:1")}
        {line("maxRetries", "On the same machine.", "0")}
        {line("retryOn", "Such as 75,100-119, up to 3 times.")}
        {line("maxMemory", "Doubles on a new machine after the container ran out. Empty: it doesn't grow.", "128Gi")}
        {line("maxLostVms", "0: the job never runs twice.", "2")}
        {line("maxHourlyPriceUsd")}
        {line("maxCostUsd")}
      </Group>
      <Group
        title="Environment and labels"
        isOpen={[...(["env", "secretEnv", "volumes", "labels", "tags"] as const)].some(
          (name) => draft[name] !== "" || errors[name] !== undefined,
        )}
      >
        {area("env", "NAME=value, one a line.")}
        {area("secretEnv", "NAME=secret:key, one a line.")}
        {area(
          "volumes",
          "name=bucket/prefix:/path, one a line. Add :ro, :cache, @connection, or checkpoint after a space, if needed.",
        )}
        {area("labels", "key=value, one a line.")}
        {line("tags", "Separated by spaces.")}
      </Group>
    </>
  )
}

/** Ticks that the form names. */
const TICKS = 3

/** Next ticks of a schedule, in UTC and in the reader's zone. */
function Ticks({ schedule }: { schedule: string }) {
  const ticks = nextTicks(schedule, new Date(), TICKS)
  if (ticks.length === 0) return null
  return (
    <ul class="plain minor" aria-label="Next runs">
      {ticks.map((tick) => (
        <li key={tick.getTime()}>{[...new Set([zonedText(tick, "utc"), zonedText(tick, "local")])].join(", here ")}</li>
      ))}
    </ul>
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
