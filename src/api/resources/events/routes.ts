import { quote } from "../../../core/apis/field-error.ts"
import type { Principal } from "../../../core/identity/principal.ts"
import { badRequest } from "../../http/problem.ts"
import { choices, repeatedFilter } from "../../http/query.ts"
import type { ConcurrencyLimit } from "../../http/rate-limits.ts"
import { eventStream, routeDeclarer } from "../../http/route.ts"
import { KINDS, type Position, positionIn } from "./position.ts"
import { type EventStreams, streamEvents } from "./stream.ts"

export interface EventServices {
  eventStreams: EventStreams
  /** Limit of the streams of a principal. */
  eventClients: ConcurrencyLimit
}

const EVENTS = `Server-sent events. Each has the event \`job\`, \`cronjob\`, \`array\` or \`connection\`, and its data is the record after a change. A connection is shown as viewers see it. Several changes of an object within 250 ms are one event. A deleted object's data is \`{"id": …, "name": …, "deleted": true}\`. \`event: reset\` means that events were missed: read the lists again; the events after the reset follow. A heartbeat of a VM is no event.`

const route = routeDeclarer<Principal, EventServices>({ tag: "events" })

export const eventRoutes = [
  route("GET /events", {
    id: "streamEvents",
    summary: "Follow the changes of jobs, cronjobs, arrays and connections.",
    role: "viewer",
    query: {
      kind: choices(KINDS),
      name: repeatedFilter("Id or name of an object. Empty: any."),
    },
    resumable: true,
    responses: { 200: eventStream(EVENTS) },
    handle: async (call, { eventStreams, eventClients }) => {
      const { principal, req, res, query } = call
      const after = lastPosition(req.get("Last-Event-ID"))
      const detail = "You follow the events of too many streams at the same time: end one of the requests first."
      eventClients.hold(principal.id, res, { detail, retryAfterSeconds: 10 })
      await streamEvents(call, { after, filter: { kinds: query.kind, names: query.name } }, eventStreams)
    },
  }),
]

/** @throws Problem 400 */
function lastPosition(id: string | undefined): Partial<Position> | undefined {
  if (id === undefined || id === "") return undefined
  const position = positionIn(id)
  if (position !== undefined) return position
  throw badRequest(
    `Last-Event-ID must be the id of an event, such as job.105,cronjob.99,connection.7, not ${quote(id)}.`,
  )
}
