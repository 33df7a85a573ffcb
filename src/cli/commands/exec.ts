import { once } from "node:events"
import { type Command, Option } from "commander"
import type { WebSocket } from "ws"
import type { Schemas } from "../../client/client.ts"
import { frameOf, readFrame, readResult, type StreamResult, sendAll } from "../../core/apis/remote-command.ts"
import type { Call, Commands } from "../command.ts"
import { EXIT, Failure } from "../exit.ts"
import { connectStream, openSession } from "../session.ts"
import { runAttached } from "./attach.ts"

/** Flags of the commands that run another one in a session. */
export interface ExecFlags {
  tty: boolean
}

/** Option of these commands. */
export const NO_TTY = new Option("--no-tty", "no terminal for the command, also at a terminal")

/** `exec`: runs a command in the container of a running job. */
export function addExecCommand(commands: Commands, program: Command): void {
  commands.add<ExecFlags>(program, {
    usage: "exec <job> [command...]",
    summary: "Run a command in a job's running container, and end with its exit code.",
    more:
      "Without a command it is sh. At a terminal the command gets one, too.\n" +
      "The VM's agent opens the connection: the VM has no open port. It takes up to 15 s, until the agent's next report.\n" +
      "The command sees the job's environment, with the values of secretEnv.",
    usageExit: EXIT.berth,
    examples: [
      ["berth exec train", "a shell in the container"],
      ["berth exec train -- nvidia-smi", "one command; words after -- are its own"],
      ["berth exec train -- tar -c /out > out.tar", "its output in a file"],
    ],
    options: [NO_TTY],
    run: (call) => runAttached(call, async () => exitCodeOf(await runInSession(call, commandIn(call.args)))),
  })
}

/** Command of a session. */
export interface SessionCommand {
  job: string
  command: string[]
  /** True: it is one of Berth's own tools. */
  toolbox?: boolean
}

/** Returns the command of the arguments JOB and WORDS; without words, a shell. */
export function commandIn([job = "", ...words]: readonly string[]): SessionCommand {
  return { job, command: words.length === 0 ? ["sh"] : words }
}

/** Returns the exit code of a command in a session. @throws Failure if it has none */
export function exitCodeOf({ exitCode }: StreamResult): number {
  if (exitCode === undefined) throw new Failure(EXIT.berth, "")
  return exitCode
}

/** Runs a command in a session at this terminal, and shows why it failed to start. */
export async function runInSession<Flags extends ExecFlags>(
  call: Call<Flags>,
  { job, command, toolbox }: SessionCommand,
): Promise<StreamResult> {
  const { terminal, signal, options } = call
  const screen = options.tty ? terminal.screen() : undefined
  const body: Schemas["SessionRequest"] = {
    ...{ command, tty: screen !== undefined },
    ...(toolbox === true && { toolbox }),
    ...screen?.size(),
  }
  const session = await openSession(call.client(), job, body, signal)
  terminal.progress(terminal.noted("dim", `Waiting for the VM's agent of ${job} …`))
  const socket = await connectStream(session, signal)
  const stop = (): void => socket.close()
  signal.addEventListener("abort", stop, { once: true })
  const restore = screen?.makeRaw()
  try {
    const result = receive(socket, call)
    const stopResizes = screen?.onResize(() => socket.send(frameOf("resize", JSON.stringify(screen.size()))))
    const sending = send(socket, call)
    const { exitCode, error } = await result
    sending.abort()
    stopResizes?.()
    if (error !== undefined) terminal.warn(`${exitCode === undefined ? "" : "\r"}${error}`)
    return { ...(exitCode !== undefined && { exitCode }), ...(error !== undefined && { error }) }
  } finally {
    restore?.()
    signal.removeEventListener("abort", stop)
    socket.terminate()
  }
}

/** Writes what the command writes, as fast as the reader takes it. Resolves with its result. @throws Failure without one */
async function receive(socket: WebSocket, { terminal, signal }: Call<object>): Promise<StreamResult> {
  let result: StreamResult | undefined
  let written = Promise.resolve()
  socket.on("message", (data: Buffer) => {
    const frame = readFrame(data)
    if (frame?.channel === "status") result = readResult(frame.content)
    if (frame?.channel !== "stdout" && frame?.channel !== "stderr") return
    const { channel, content } = frame
    socket.pause()
    written = written.then(() => terminal.raw(channel, content)).finally(() => socket.resume())
    written.catch(() => undefined)
  })
  const [code, reason] = (await once(socket, "close")) as [number, Buffer]
  await written
  signal.throwIfAborted()
  if (result !== undefined) return result
  const why = reason.byteLength > 0 ? reason.toString() : `the connection broke off (${code})`
  throw new Failure(EXIT.berth, `The session has ended: ${why}.`)
}

/** Sends standard input, as fast as the command takes it. The returned controller ends that. */
function send(socket: WebSocket, { terminal }: Call<object>): AbortController {
  const enough = new AbortController()
  sendAll(socket, "stdin", terminal.pieces(enough.signal)).catch(() => undefined)
  return enough
}
