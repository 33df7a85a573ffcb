import { useSignal } from "@preact/signals"
import { type ComponentChildren, cloneElement, type VNode } from "preact"
import { useEffect, useId, useRef } from "preact/hooks"
import type { JobRecord } from "../../client/client.ts"
import { needsUser } from "../../client/conditions.ts"
import { ago, duration, secondsBetween, timeText, usd } from "../format.ts"
import { now, zone } from "../state.ts"
import { ActionEnd, useAction, useFieldError } from "./action.tsx"

/** Moment in the reader's words; its title has local time and UTC. */
export function Time({ at, isRelative = false }: { at: string; isRelative?: boolean }) {
  const both = `${timeText(at, "local")} (${timeText(at, "utc")})`
  return (
    <time dateTime={at} title={both}>
      {isRelative ? ago(at, now.value) : timeText(at, zone.value)}
    </time>
  )
}

/** Status of a job, with a sign that needs no color. */
export function Status({ of }: { of: JobRecord["status"] }) {
  return <Signed of={of} as={of} />
}

/** Word with the sign of a job's status. */
export function Signed({ of, as }: { of: string; as: JobRecord["status"] }) {
  return (
    <span class={`status ${as}`}>
      <i aria-hidden="true" />
      {of}
    </span>
  )
}

/** Reason for which a job or an array waits or has failed, and a sign if only its user can help. */
export function Reason({ of }: { of: Pick<JobRecord, "status" | "reason"> }) {
  const { status, reason } = of
  if (reason === null || (status !== "queued" && status !== "failed")) return null
  return (
    <>
      {needsUser(of) && <span class="tag trouble">needs you</span>}
      <span class="minor cut">{reason}</span>
    </>
  )
}

/** Returns the time that a job has run, or waits; empty if it has not begun. */
export function runTime({ started_at, ended_at }: JobRecord): string {
  if (started_at === null) return ""
  return duration(secondsBetween(started_at, ended_at ?? new Date(now.value).toISOString()))
}

/** Returns the cost of a job: billed, so far, or expected. */
export function costOf({ actual_cost, accrued_cost, estimated_cost }: JobRecord): string {
  if (actual_cost !== null) return usd(actual_cost)
  if (accrued_cost !== null && accrued_cost > 0) return `${usd(accrued_cost)} so far`
  return estimated_cost === null ? "" : `about ${usd(estimated_cost)}`
}

/** Returns the machine of a job in one line; undefined if it has none. */
export function machineOf({ selected_provider, selected_instance_type, selected_region }: JobRecord) {
  return selected_provider === null ? undefined : `${selected_provider} ${selected_instance_type} · ${selected_region}`
}

/** Returns labels as one text, such as `team=vision, run=a17`. */
export function labelsText(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}=${value}`)
    .join(", ")
}

interface DialogProps {
  title: string
  /** Text of the button that acts. */
  action: string
  isDangerous?: boolean
  act: () => Promise<void>
  close: () => void
  children?: ComponentChildren
}

/** Question before an action. The action's error stays in the dialog. */
export function Dialog({ title, action, isDangerous = false, act, close, children }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null)
  const state = useAction()
  useEffect(() => ref.current?.showModal(), [])
  const submit = (event: Event): void => {
    event.preventDefault()
    state.run(() => act().then(close))
  }
  return (
    <dialog ref={ref} onClose={close} aria-labelledby="dialog-title">
      <form onSubmit={submit}>
        <h2 id="dialog-title">{title}</h2>
        {children}
        <ActionEnd of={state} action={action} isDangerous={isDangerous} close={close} />
      </form>
    </dialog>
  )
}

/** Button that cancels something after a question. */
export function CancelButton({
  of,
  action,
  isShown,
  act,
  children,
  verb = "Cancel",
}: {
  /** Name of what is cancelled. */
  of: string
  /** Text of the button, and of the question before the name. */
  verb?: string
  /** Text of the button in the question. */
  action: string
  /** False once there is nothing to cancel. An open question stays, and so does its error. */
  isShown: boolean
  act: () => Promise<void>
  /** Consequences, in sentences. */
  children: ComponentChildren
}) {
  const isAsking = useSignal(false)
  const ask = (isOpen: boolean) => (): void => {
    isAsking.value = isOpen
  }
  return (
    <>
      {isShown && (
        <button type="button" class="danger" onClick={ask(true)}>
          {verb}
        </button>
      )}
      {isAsking.value && (
        <Dialog title={`${verb} ${of}?`} action={action} isDangerous act={act} close={ask(false)}>
          {children}
        </Dialog>
      )}
    </>
  )
}

/** Button that copies a text, and says so. */
export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const note = useSignal(label)
  const copy = (): void => {
    const write = navigator.clipboard?.writeText(text) ?? Promise.reject(new Error("no clipboard"))
    write.then(
      () => {
        note.value = "Copied"
        setTimeout(() => {
          note.value = label
        }, 2000)
      },
      () => {
        note.value = "Select the text to copy it"
      },
    )
  }
  return (
    <button type="button" class="small" onClick={copy}>
      <span aria-live="polite">{note.value}</span>
    </button>
  )
}

interface FieldProps {
  label: string
  /** Name in the API. The field shows the API's error of it. */
  name?: string
  hint?: string | undefined
  error?: string | undefined
  /** The control. */
  children: VNode
}

/** Form field with its label, hint and error. */
export function Field({ label, name, hint, error: own, children }: FieldProps) {
  const id = useId()
  const ofApi = useFieldError(name)
  const error = own ?? ofApi
  const notes = [hint !== undefined && `${id}-hint`, error !== undefined && `${id}-error`].filter(Boolean).join(" ")
  const control = cloneElement(children, {
    ...(notes !== "" && { "aria-describedby": notes }),
    ...(error !== undefined && { "aria-invalid": true }),
  })
  return (
    <div class={error === undefined ? "field" : "field wrong"}>
      {/* biome-ignore lint/a11y/noLabelWithoutControl: the control is the child */}
      <label class="field">
        <span class="field-label">{label}</span>
        {control}
      </label>
      {hint !== undefined && (
        <span class="hint" id={`${id}-hint`}>
          {hint}
        </span>
      )}
      {error !== undefined && (
        <span class="error" id={`${id}-error`}>
          {error}
        </span>
      )}
    </div>
  )
}

/** Returns the handler of an input's text. */
export function onText(use: (value: string) => void): (event: { currentTarget: { value: string } }) => void {
  return ({ currentTarget: { value } }) => use(value)
}

/** Title of a page: it is also the document's, and takes the focus after a navigation. */
export function PageTitle({ title, children }: { title: string; children?: ComponentChildren }) {
  const ref = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    document.title = `${title} · Berth`
    if (document.activeElement === document.body || document.activeElement?.tagName === "A") ref.current?.focus()
  }, [title])
  return (
    <header class="page-title">
      <h1 ref={ref} tabIndex={-1}>
        {title}
      </h1>
      {children && <div class="actions">{children}</div>}
    </header>
  )
}

interface FactsProps {
  of: readonly [name: string, value: ComponentChildren][]
  /** True: each value may need the whole width. */
  isWide?: boolean
}

/** Names and values. */
export function Facts({ of, isWide = false }: FactsProps) {
  const shown = of.filter(([, value]) => value !== undefined && value !== null && value !== "")
  return (
    <dl class={isWide ? "facts wide" : "facts"}>
      {shown.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  )
}

/** Place of a table, which scrolls sideways by itself on a small screen, also with the keyboard. */
export function TableFrame({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <div class="table-frame" role="group" tabIndex={0} aria-label={label}>
      {children}
    </div>
  )
}
