import Type, { type Static } from "typebox"
import { SESSION_PROTOCOL } from "../../../core/apis/remote-command.ts"
import { ALLOWED, Int, Text } from "../../../core/apis/schema.ts"
import type { PageOf } from "../../http/json-schema.ts"

const Size = Int({ minimum: 1, maximum: 10_000 })

/** Body of POST /jobs/{id}/sessions. */
export const SessionRequestSchema = Type.Object({
  command: Type.Optional(
    Type.Array(Text(4096, "Word of the command."), {
      minItems: 1,
      maxItems: 256,
      description: "Command to run in the container, such as sh. Its session ends with it.",
    }),
  ),
  tty: Type.Optional(Type.Boolean({ description: "True: the command gets a terminal. Default: false." })),
  toolbox: Type.Optional(
    Type.Boolean({
      description:
        "True: the command is one of Berth's own tools (busybox), for an image without them. It runs beside the container, which then has its files at /proc/1/root, or in the copy of a failed one. Default: false.",
    }),
  ),
  columns: Type.Optional(Size),
  rows: Type.Optional(Size),
  port: Type.Optional(
    Int({
      minimum: 1,
      maximum: 65_535,
      description: "TCP port of the container. Each connection is a WebSocket of its own.",
    }),
  ),
})
export type SessionRequest = Static<typeof SessionRequestSchema>

const SESSION = {
  session_id: Type.String(),
  kind: Type.String({ description: "exec, or port <number>." }),
  opened_by: Type.String({ description: "Id of the key or person." }),
  opened_at: Type.String({ format: "date-time", description: "Time of its beginning.", [ALLOWED]: "an RFC 3339 time" }),
}

export const SessionRecordSchema = Type.Object(SESSION)
export type SessionRecord = Static<typeof SessionRecordSchema>

/** Response of POST /jobs/{id}/sessions. */
export const SessionOpenedSchema = Type.Object({
  ...SESSION,
  path: Type.String({
    description: `Path for a WebSocket (wss) with the subprotocols ${SESSION_PROTOCOL} and berth.session.<token>. Its messages are those of Kubernetes' remote commands: the first byte is the channel.`,
  }),
  token: Type.String({ description: "Secret of this session. It is shown once." }),
  url: Type.Union([Type.String(), Type.Null()], {
    description:
      "Link that opens the port in a browser. It works once. Null: the session is a command, or the installation has no domain for ports.",
  }),
  idle_seconds: Type.Integer({ description: "Seconds without a byte after which it ends." }),
  max_seconds: Type.Integer({ description: "Seconds after which it ends at the latest." }),
})
export type SessionOpened = Static<typeof SessionOpenedSchema>

/** Response of GET /jobs/{id}/sessions. */
export type SessionList = PageOf<"sessions", SessionRecord>
