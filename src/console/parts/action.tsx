import { type Signal, useSignal } from "@preact/signals"
import { type ComponentChildren, createContext } from "preact"
import { useContext, useEffect, useRef } from "preact/hooks"
import { errorText, fieldErrors } from "./load.tsx"

/** Action of the reader: true while it runs, and its last error. */
export interface Action {
  isBusy: Signal<boolean>
  fault: Signal<unknown>
  /** Names of the fields that show their own errors. */
  fields: Set<string>
  run: (act: () => Promise<void>) => void
}

export function useAction(): Action {
  const isBusy = useSignal(false)
  const fault = useSignal<unknown>(undefined)
  const { current: fields } = useRef(new Set<string>())
  const run: Action["run"] = (act) => {
    isBusy.value = true
    fault.value = undefined
    act()
      .catch((error: unknown) => {
        fault.value = error
      })
      .finally(() => {
        isBusy.value = false
      })
  }
  return { isBusy, fault, fields, run }
}

/**
 * Returns the function that makes the buttons of one object among several. Screen readers hear its name too, and none can
 * be pressed while an action runs.
 */
export function buttonsOf(name: string, { isBusy }: Action) {
  return (label: string, act: () => void) => (
    <button type="button" class="small" disabled={isBusy.value} onClick={act}>
      {label}
      <span class="hidden"> {name}</span>
    </button>
  )
}

/** Action of the form around a field. */
const FormAction = createContext<Action | undefined>(undefined)

/** Returns the API's error of a field of the form. @param name name of the field in the API */
export function useFieldError(name: string | undefined): string | undefined {
  const action = useContext(FormAction)
  if (action === undefined || name === undefined) return undefined
  action.fields.add(name)
  const errors = fieldErrors(action.fault.value).filter(({ field }) => isOf(field, name))
  return errors.length === 0 ? undefined : errors.map(({ detail }) => detail).join(" · ")
}

function isOf(field: string, name: string): boolean {
  return field === name || field.startsWith(`${name}.`)
}

/** The API's error of a group of controls. */
export function GroupError({ name }: { name: string }) {
  const error = useFieldError(name)
  if (error === undefined) return null
  return <p class="error">{error}</p>
}

/** Error of an action in words. Fields of its form show their own errors, and the first of them takes the focus. */
export function ActionFault({ of: { fault, fields } }: { of: Action }) {
  const ref = useRef<HTMLParagraphElement>(null)
  useEffect(() => {
    ref.current?.closest("form")?.querySelector<HTMLElement>("[aria-invalid]")?.focus()
  }, [fault.value])
  if (fault.value === undefined) return null
  const all = fieldErrors(fault.value)
  const others = all.filter(({ field }) => ![...fields].some((name) => isOf(field, name)))
  const isOfFields = all.length > 0 && others.length === 0
  const text = others.length === all.length ? errorText(fault.value).text : textOf(others)
  return (
    <p class="fault" role="alert" ref={ref}>
      {isOfFields ? "Nothing was changed: correct the marked fields." : text}
    </p>
  )
}

function textOf(errors: ReturnType<typeof fieldErrors>): string {
  return errors.map(({ detail }) => detail).join(" · ")
}

/** Error of an action, and its buttons. */
export function ActionEnd({
  of,
  action,
  isDangerous = false,
  close,
}: {
  of: Action
  action: string
  isDangerous?: boolean
  close: () => void
}) {
  return (
    <>
      <ActionFault of={of} />
      <div class="actions">
        <button type="button" onClick={close}>
          Back
        </button>
        <button type="submit" class={isDangerous ? "danger" : "primary"} disabled={of.isBusy.value}>
          {action}
        </button>
      </div>
    </>
  )
}

/** Form on a page. An error of its action stays in it. */
export function PanelForm({
  title,
  action,
  act,
  close,
  children,
}: {
  title: string
  /** Text of the button that acts. */
  action: string
  act: () => Promise<void>
  close: () => void
  children: ComponentChildren
}) {
  const state = useAction()
  const submit = (event: Event): void => {
    event.preventDefault()
    state.run(act)
  }
  return (
    <form class="panel" aria-label={title} onSubmit={submit}>
      <h2>{title}</h2>
      <FormAction.Provider value={state}>{children}</FormAction.Provider>
      <ActionEnd of={state} action={action} close={close} />
    </form>
  )
}
