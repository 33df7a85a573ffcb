import { type Signal, useSignal } from "@preact/signals"
import type { ComponentChildren } from "preact"
import { useEffect, useRef } from "preact/hooks"
import { ApiError } from "../../client/errors.ts"
import type { Change } from "../../client/events.ts"
import { ENDED, isRejected, onChange, signOut } from "../state.ts"

/** Answer of the API: data, the last error, and how to ask again. Data stay while they are read again. */
export interface Loaded<Data> {
  data: Signal<Data | undefined>
  error: Signal<unknown>
  isLoading: Signal<boolean>
  reload: () => void
}

/**
 * Asks the API, and asks again when the key changes.
 * @param key identifies what is asked for
 * @param subject while it is the same, the earlier answer stays until the next one is there
 */
export function useLoad<Data>(key: string, load: (signal: AbortSignal) => Promise<Data>, subject = key): Loaded<Data> {
  const data = useSignal<Data | undefined>(undefined)
  const error = useSignal<unknown>(undefined)
  const isLoading = useSignal(true)
  const latest = useRef(load)
  latest.current = load
  const running = useRef<AbortController>(undefined)
  const reload = (): void => {
    running.current?.abort()
    const { signal } = abortable(running)
    isLoading.value = true
    const ended = (): void => {
      if (!signal.aborted) isLoading.value = false
    }
    latest
      .current(signal)
      .then(
        (answer) => {
          if (signal.aborted) return
          data.value = answer
          error.value = undefined
        },
        (fault: unknown) => {
          if (signal.aborted) return
          if (isRejected(fault)) signOut(ENDED)
          error.value = fault
        },
      )
      .finally(ended)
  }
  useEffect(() => {
    data.value = undefined
    error.value = undefined
  }, [subject])
  useEffect(() => {
    reload()
    return () => running.current?.abort()
  }, [key])
  return { data, error, isLoading, reload }
}

/** Keeps a new controller of a request. */
function abortable(running: { current: AbortController | undefined }): AbortController {
  running.current = new AbortController()
  return running.current
}

/** Shortest time between two reads because of changes, milliseconds. */
const RELOAD_MS = 1500
/** Time in which the changes of one action arrive, milliseconds. */
const SETTLE_MS = 150

/**
 * Asks again after changes of the project that concern the page. Many changes at once cause one read.
 * @param every shortest time between two reads, milliseconds
 */
export function useReloadOnChange(concerns: (change: Change) => boolean, reload: () => void, every = RELOAD_MS): void {
  const latest = useRef({ concerns, reload })
  latest.current = { concerns, reload }
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined
    let last = Date.now()
    const end = onChange((change) => {
      if (change.event !== "reset" && !latest.current.concerns(change)) return
      timer ??= setTimeout(
        () => {
          timer = undefined
          last = Date.now()
          latest.current.reload()
        },
        Math.max(SETTLE_MS, last + every - Date.now()),
      )
    })
    return () => {
      clearTimeout(timer)
      end()
    }
  }, [])
}

/** Asks again after each interval, while the page is visible. For numbers that come with no change of the project. */
export function useReloadEvery(milliseconds: number, reload: () => void): void {
  const latest = useRef(reload)
  latest.current = reload
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) latest.current()
    }, milliseconds)
    return () => clearInterval(timer)
  }, [])
}

/** Shows an answer of the API in each of its states. */
export function Answer<Data>({ of, children }: { of: Loaded<Data>; children: (data: Data) => ComponentChildren }) {
  const { data, error, reload } = of
  if (data.value === undefined && error.value === undefined) return <Skeleton />
  return (
    <>
      {error.value !== undefined && <Fault error={error.value} retry={reload} />}
      {data.value !== undefined && children(data.value)}
    </>
  )
}

/** Place of content that is being read. */
export function Skeleton() {
  return (
    <div class="skeleton" role="status">
      <span class="hidden">Loading</span>
      <i />
      <i />
      <i />
    </div>
  )
}

/** Error in words, with the id of the request and how to try again. */
export function Fault({ error, retry }: { error: unknown; retry?: () => void }) {
  const { text, id } = errorText(error)
  return (
    <div class="fault" role="alert">
      <p>{text}</p>
      {id !== undefined && <p class="minor">Request {id}</p>}
      {retry && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  )
}

/** Returns an error as text for people. */
export function errorText(error: unknown): { text: string; id?: string | undefined } {
  if (error instanceof ApiError) {
    const { status, message, requestId: id } = error
    if (status === 403) return { text: `You are not allowed to do this: ${message}`, id }
    const details = fieldErrors(error).map(({ detail }) => detail)
    return { text: details.length === 0 ? message : details.join(" · "), id }
  }
  return { text: error instanceof Error ? error.message : String(error) }
}

/** Returns the API's errors of single fields, each with its name such as `resources.gpu`. */
export function fieldErrors(error: unknown): { field: string; detail: string }[] {
  if (!(error instanceof ApiError)) return []
  return error.errors.map(({ pointer, detail }) => ({
    field: pointer.replace(/^[#/]+/, "").replaceAll("/", "."),
    detail,
  }))
}

/** Text for a list without entries. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  )
}
