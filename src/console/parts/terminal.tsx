import { type Signal, useSignal, useSignalEffect } from "@preact/signals"
import type { RefObject } from "preact"
import { useEffect, useRef } from "preact/hooks"
import { type JobRecord, readBody } from "../../client/client.ts"
import { parseWords } from "../draft.ts"
import { isKept } from "../sessions/entry.ts"
import { LEAVE_KEYS, Screen } from "../sessions/screen.ts"
import { CommandStream, type StreamEnd } from "../sessions/stream.ts"
import { client, theme } from "../state.ts"
import { Field, onText } from "./basics.tsx"
import { errorText } from "./load.tsx"

interface TerminalProps {
  job: Pick<JobRecord, "id" | "name" | "status" | "kept_until">
  /** Reason for which no session can be opened now; undefined if one can. One that is open stays. */
  closed: string | undefined
  /** Is called after a session has begun or ended. */
  onChange: () => void
}

/** A command in the container of a job, on a terminal. */
export function TerminalPart({ job, closed, onChange }: TerminalProps) {
  const line = useSignal("sh")
  const withTools = useSignal(false)
  /** Number of the command on the screen; 0: none. */
  const run = useSignal(0)
  const open = (): void => {
    run.value++
  }
  const close = (): void => {
    run.value = 0
  }
  if (run.value === 0 && closed !== undefined) return null
  return (
    <section class="panel" aria-label="Terminal">
      <h2>Terminal</h2>
      {run.value === 0 ? (
        <CommandForm job={job} line={line} withTools={withTools} open={open} />
      ) : (
        <Command
          key={run.value}
          job={job}
          command={parseWords(line.value) ?? []}
          toolbox={withTools.value || isKept(job)}
          closed={closed}
          again={open}
          close={close}
          onChange={onChange}
        />
      )}
    </section>
  )
}

const IN_CONTAINER = "It runs in the job's container, and sees the values of secretEnv."

interface CommandFormProps {
  job: TerminalProps["job"]
  line: Signal<string>
  /** True: the command is one of Berth's tools. */
  withTools: Signal<boolean>
  open: () => void
}

function CommandForm({ job, line, withTools, open }: CommandFormProps) {
  const words = parseWords(line.value)
  const submit = (event: Event): void => {
    event.preventDefault()
    open()
  }
  return (
    <form class="opener" aria-label="Open a terminal" onSubmit={submit}>
      <Field
        label="Command"
        hint={isKept(job) ? "It runs in a copy of the failed container." : IN_CONTAINER}
        error={words === undefined ? "A quotation mark is not closed." : undefined}
      >
        <input
          value={line.value}
          spellcheck={false}
          autocapitalize="off"
          onInput={onText((text) => {
            line.value = text
          })}
        />
      </Field>
      <button type="submit" class="primary" disabled={words === undefined || words.length === 0}>
        Open the terminal
      </button>
      {!isKept(job) && (
        <label class="toggle">
          <input
            type="checkbox"
            checked={withTools.value}
            onChange={({ currentTarget }) => {
              withTools.value = currentTarget.checked
            }}
          />
          With Berth's tools (busybox), for an image without a shell
        </label>
      )}
    </form>
  )
}

/** State of a command; `refused`: the API opened no session. */
type State =
  | { at: "connecting" }
  | { at: "connected" }
  | { at: "ended"; end: StreamEnd }
  | { at: "refused"; error: unknown }

interface CommandProps extends TerminalProps {
  command: string[]
  toolbox: boolean
  again: () => void
  close: () => void
}

function Command({ job, command, toolbox, closed, again, close, onChange }: CommandProps) {
  const place = useRef<HTMLDivElement>(null)
  const closer = useRef<HTMLButtonElement>(null)
  const state = useSignal<State>({ at: "connecting" })
  useScreen({ place, state, job, command, toolbox, onLeave: () => closer.current?.focus(), onChange })
  const { at } = state.value
  const isOver = at === "ended" || at === "refused"
  return (
    <>
      <p class={at === "refused" ? "fault" : "minor"} role="status">
        {wordsOf(state.value, job.name)}
      </p>
      <div ref={place} class="terminal-screen" hidden={at === "refused"} />
      <div class="actions">
        {isOver && closed === undefined && (
          <button type="button" class="primary" onClick={again}>
            Open again
          </button>
        )}
        <button type="button" ref={closer} onClick={close}>
          Close the terminal
        </button>
        {!isOver && (
          <span class="minor">
            The terminal has all keys. <kbd>{LEAVE_KEYS}</kbd> moves the focus out of it.
          </span>
        )}
      </div>
    </>
  )
}

/** Returns the state of a command in words. */
export function wordsOf(state: State, job: string): string {
  if (state.at === "connecting")
    return "Connecting: the VM's agent learns of the session by its next report, at most 15 s from now."
  if (state.at === "connected") return "Connected."
  if (state.at === "refused") return errorText(state.error).text
  const { error, exitCode, reason } = state.end
  if (exitCode === undefined)
    return `The session has ended: ${error ?? (reason || "the command's exit code is unknown")}.`
  const ended = `The command has ended with exit code ${exitCode}.`
  if (error === undefined) return ended
  const remedy = NOT_STARTED.includes(exitCode) ? ` Without a shell in the image, use: berth debug ${job}` : ""
  return `${ended} ${error}.${remedy}`
}

/** Exit codes of a command that can't be started, as in shells. */
const NOT_STARTED = [126, 127]

interface ScreenOptions extends Pick<CommandProps, "job" | "command" | "toolbox" | "onChange"> {
  place: RefObject<HTMLDivElement | null>
  state: Signal<State>
  onLeave: () => void
}

/** Shows a command on a screen until the component ends. */
function useScreen({ place, state, job, command, toolbox, onLeave, onChange }: ScreenOptions): void {
  const shown = useRef<Screen>(undefined)
  useEffect(() => {
    if (place.current === null) return
    const gone = new AbortController()
    let stream: CommandStream | undefined
    const screen = new Screen(place.current, {
      label: `Terminal of ${job.name}`,
      onInput: (input) => stream?.send(input),
      onResize: (size) => stream?.resize(size),
      onLeave,
    })
    shown.current = screen
    screen.focus()
    const end = (last: State): void => {
      if (gone.signal.aborted) return
      screen.freeze()
      state.value = last
      onChange()
    }
    openSession(job, { command, tty: true, toolbox, ...screen.size }, gone.signal).then(
      ({ url, token }) => {
        if (gone.signal.aborted) return
        stream = new CommandStream({
          ...{ url, token },
          onJoin: () => {
            state.value = { at: "connected" }
          },
          onOutput: (output) => screen.write(output),
          onEnd: (last) => end({ at: "ended", end: last }),
        })
        onChange()
      },
      (error: unknown) => end({ at: "refused", error }),
    )
    return () => {
      gone.abort()
      stream?.close()
      screen.dispose()
      onChange()
    }
  }, [])
  useRecoloring(() => shown.current?.recolor())
}

/** Opens a session. Ends it at once if the signal has aborted by then. @throws ApiError */
async function openSession(
  { id }: Pick<JobRecord, "id">,
  body: { command: string[]; tty: boolean; toolbox: boolean; columns: number; rows: number },
  signal: AbortSignal,
): Promise<{ url: string; token: string }> {
  const { api, baseUrl } = client.value
  const { session_id, token } = await readBody(api.POST("/jobs/{id}/sessions", { params: { path: { id } }, body }))
  if (signal.aborted) await api.DELETE("/jobs/{id}/sessions/{session_id}", { params: { path: { id, session_id } } })
  return { url: `${baseUrl.replace(/^http/, "ws")}/jobs/${id}/sessions/${session_id}`, token }
}

/** Calls back after each change of the theme, of the console or of the system. */
function useRecoloring(recolor: () => void): void {
  useSignalEffect(() => {
    theme.value
    recolor()
  })
  useEffect(() => {
    const system = matchMedia("(prefers-color-scheme: dark)")
    system.addEventListener("change", recolor)
    return () => system.removeEventListener("change", recolor)
  }, [])
}
