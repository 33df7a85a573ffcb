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
 * `…/sessions/{session}/streams/{stream}`, in the same way. `core/apis/remote-command.ts` has the frames of a stream.
 */

/** Largest message of the other kinds: challenges, proofs, orders, resizes and results. */
export const SESSION_MESSAGE_BYTES = 64 * 1024

const Size = Int({ minimum: 1, maximum: 10_000 })

/** Size of a terminal. */
export const TerminalSizeSchema = Type.Object({ columns: Size, rows: Size })

/** Command or port of a session. Exactly one is present. */
export const SessionTargetSchema = Type.Object({
  exec: Type.Optional(
    Type.Object({
      command: Type.Array(Text(4096, "Word of the command."), { minItems: 1, maxItems: 256 }),
      tty: Type.Boolean(),
      /** True: the command is one of the agent's own tools (busybox), beside the job's programs. */
      toolbox: Type.Optional(Type.Boolean()),
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

/** Returns the path of a session's connection, or of one of its streams, below the gateway's host. */
export function sessionPath(launch: string, session: string, stream = 0): string {
  const own = `${GATEWAY_PATH}/launches/${encodeURIComponent(launch)}/sessions/${encodeURIComponent(session)}`
  return stream === 0 ? own : `${own}/streams/${stream}`
}
