import { type Signal, useSignal } from "@preact/signals"
import type { ComponentChildren } from "preact"
import { explained } from "./load.tsx"

/** Action of the reader: true while it runs, and its last error. */
export interface Action {
  isBusy: Signal<boolean>
  fault: Signal<string | undefined>
  run: (act: () => Promise<void>) => void
}

export function useAction(): Action {
  const isBusy = useSignal(false)
  const fault = useSignal<string | undefined>(undefined)
  const run: Action["run"] = (act) => {
    isBusy.value = true
    fault.value = undefined
    act()
      .catch((error: unknown) => {
        fault.value = explained(error).text
      })
      .finally(() => {
        isBusy.value = false
      })
  }
  return { isBusy, fault, run }
}

/** Error of an action in words. */
export function ActionFault({ of: { fault } }: { of: Action }) {
  if (fault.value === undefined) return null
  return (
    <p class="fault" role="alert">
      {fault.value}
    </p>
  )
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
      {children}
      <ActionEnd of={state} action={action} close={close} />
    </form>
  )
}
