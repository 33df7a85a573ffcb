import Type, { type Static } from "typebox"
import { Int, Text } from "../apis/schema.ts"
import { GATEWAY_PATH } from "./protocol.ts"

/**
 * Sessions: a person's way into a running container, over connections that the agent opens.
 *
 * The gateway's answers to reports name the open sessions of the Launch. For each the agent opens a WebSocket at
 * `GET {gateway}/agent/v1/launches/{launch}/sessions/{session}` with its bearer token. The other end sends a
 * `SessionChallenge`. The agent answers with a `SessionProof`, a JWS by the key that the Launch is bound to, so that no
 * recorded message opens a session. From then on it receives `StreamOrder`s. For each it opens another WebSocket, at
 * `…/sessions/{session}/streams/{stream}`, in the same way. The frames of a stream are those of Kubernetes' remote commands:
 * binary messages whose first byte is the channel (https://github.com/kubernetes/kubernetes/blob/v1.31.0/staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go).
 */
export const SESSION_PROTOCOL = "v5.channel.k8s.io"

/** Channels of a stream. `close` is followed by the channel that its sender has ended. A stream of a port uses `stdin` and `stdout`. */
export const CHANNELS = { stdin: 0, stdout: 1, stderr: 2, status: 3, resize: 4, close: 255 } as const
export type Channel = keyof typeof CHANNELS

/** Largest frame, bytes. Senders cut what is longer. */
export const FRAME_BYTES = 64 * 1024

/** Largest message of the other kinds: challenges, proofs, orders, resizes and results. */
export const SESSION_MESSAGE_BYTES = 64 * 1024

const Size = Int({ minimum: 1, maximum: 10_000 })

/** Size of a terminal. */
export const TerminalSizeSchema = Type.Object({ columns: Size, rows: Size })
export type TerminalSize = Static<typeof TerminalSizeSchema>

/** What a session does in the container. Exactly one is present. */
export const SessionTargetSchema = Type.Object({
  exec: Type.Optional(
    Type.Object({
      command: Type.Array(Text(4096, "Word of the command."), { minItems: 1, maxItems: 256 }),
      tty: Type.Boolean(),
      size: Type.Optional(TerminalSizeSchema),
    }),
  ),
  port: Type.Optional(Int({ minimum: 1, maximum: 65_535 })),
})
export type SessionTarget = Static<typeof SessionTargetSchema>

export const SessionChallengeSchema = Type.Object({ challenge: Text(128, "Random text.") })
export type SessionChallenge = Static<typeof SessionChallengeSchema>

/** Content of the JWS with which the agent answers a challenge. */
export const SessionProofSchema = Type.Object({
  launch: Text(253, "Name of the Launch."),
  session: Text(64, "Id of the session."),
  /** Number of the stream; 0 for the session's own connection. */
  stream: Int(),
  challenge: Text(128, "Text of the challenge."),
})

export type SessionProof = Static<typeof SessionProofSchema>

/** Order to open a stream. */
export const StreamOrderSchema = Type.Object({ stream: Int({ minimum: 1 }), target: SessionTargetSchema })
export type StreamOrder = Static<typeof StreamOrderSchema>

/** Result of a stream, on the channel `status`: the exit code of a command, or why there is none. */
export const StreamResultSchema = Type.Object({
  exitCode: Type.Optional(Int({ minimum: 0 })),
  error: Type.Optional(Text(1024, "Reason.")),
})
export type StreamResult = Static<typeof StreamResultSchema>

/** Returns the path of a session's connection, or of one of its streams, below the gateway's host. */
export function sessionPath(launch: string, session: string, stream = 0): string {
  const own = `${GATEWAY_PATH}/launches/${encodeURIComponent(launch)}/sessions/${encodeURIComponent(session)}`
  return stream === 0 ? own : `${own}/streams/${stream}`
}

/** Returns a frame. */
export function frameOf(channel: Channel, content: Uint8Array | string): Buffer {
  return Buffer.concat([Buffer.of(CHANNELS[channel]), typeof content === "string" ? Buffer.from(content) : content])
}

/** Returns the frame that says that a channel has ended. */
export function endOf(channel: Channel): Buffer {
  return Buffer.of(CHANNELS.close, CHANNELS[channel])
}

/** Returns a frame's channel and content; undefined for one of an unknown channel, which the receiver drops. */
export function readFrame(frame: Buffer): { channel: Channel; content: Buffer } | undefined {
  const number = frame[0]
  const found = (Object.entries(CHANNELS) as [Channel, number][]).find(([, known]) => known === number)
  return found === undefined ? undefined : { channel: found[0], content: frame.subarray(1) }
}
