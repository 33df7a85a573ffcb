import type { Router } from "express"
import type { StoredConnection } from "../../apis/connection.ts"
import { fromMetadataName } from "../../apis/names.ts"
import { parseBody } from "../../http/body.ts"
import { preconditionOf } from "../../http/entity-tags.ts"
import { invalidRequest, Problem } from "../../http/problem.ts"
import { Query } from "../../http/query.ts"
import type { Principal } from "../../identity/principal.ts"
import { type Admission, type Call, endpoint, pathParameter, sendRecord } from "../endpoint.ts"
import { idempotencyKeyOf } from "../../http/route.ts"
import { ownerOf } from "../owner.ts"
import { SORTING, sorted } from "../sorting.ts"
import type { Connections } from "./connections.ts"
import type { ConnectionList, ConnectionRecord } from "./schema.ts"
import {
  checkConnection,
  checkConnectionChange,
  connectionRecordOf,
  connectionSummaryOf,
  withoutSecrets,
} from "./translate.ts"

export interface ConnectionRouteOptions {
  admission: Admission
  connectionsOf: (principal: Principal) => Connections
}

/** The contract's connection endpoints. */
export function connectionRoutes(router: Router, { admission, connectionsOf }: ConnectionRouteOptions): void {
  endpoint(
    router,
    "/connections",
    {
      GET: { role: "viewer", handle: (call) => listConnections(call, connectionsOf(call.principal)) },
      POST: { role: "admin", handle: (call) => createConnection(call, connectionsOf(call.principal)) },
    },
    admission,
  )
  endpoint(
    router,
    "/connections/:name",
    {
      GET: { role: "viewer", handle: (call) => getConnection(call, connectionsOf(call.principal)) },
      PATCH: { role: "admin", handle: (call) => changeConnection(call, connectionsOf(call.principal)) },
      DELETE: { role: "admin", handle: (call) => deleteConnection(call, connectionsOf(call.principal)) },
    },
    admission,
  )
}

async function createConnection(call: Call, connections: Connections): Promise<void> {
  const { req, res, principal } = call
  new Query(req).check()
  const key = idempotencyKeyOf(req)
  const checked = checkConnection(parseBody(req), ownerOf(principal.project))
  if ("faults" in checked) throw invalidRequest(checked.faults, "The connection")
  const created = await connections.create(checked.body, key)
  res.location(`/1/connections/${encodeURIComponent(fromMetadataName(created.metadata.name))}`)
  sendRecord(call, created, { record: await redacted(call, connections, created), status: 201 })
}

/** The contract has two forms of this list; credentials are redacted in both. */
async function listConnections(call: Call, connections: Connections): Promise<void> {
  const query = new Query(call.req)
  const name = query.filter("name")
  const view = query.choice("view", ["full", "summary"])
  const sorting = {
    sort_by: SORTING.sort_by.read(query, "sort_by"),
    sort_order: SORTING.sort_order.read(query, "sort_order"),
  }
  const page = query.page()
  query.check()
  const all = connections.all().filter(({ metadata }) => name === undefined || fromMetadataName(metadata.name) === name)
  const shown = sorted(all, sorting).slice(page.offset, page.offset + page.limit)
  if (view === "summary") {
    call.res.json(shown.map(connectionSummaryOf))
    return
  }
  const records = await Promise.all(shown.map((connection) => redacted(call, connections, connection)))
  const list: ConnectionList = { connections: records, total: all.length, ...page }
  call.res.json(list)
}

/** An admin sees the values, which nothing on the way may keep; others see the record without them. */
async function getConnection(call: Call, connections: Connections): Promise<void> {
  const { req, res, principal } = call
  new Query(req).check()
  const connection = await connections.find(pathParameter(req, "name"))
  if (principal.role !== "admin") {
    sendRecord(call, connection, { record: connectionRecordOf(connection) })
    return
  }
  const record = connectionRecordOf(connection, await connections.credentialsOf(connection))
  res.set("Cache-Control", "no-store")
  sendRecord(call, connection, { record, view: "clear" })
}

async function changeConnection(call: Call, connections: Connections): Promise<void> {
  const { req, principal } = call
  new Query(req).check()
  const precondition = preconditionOf(req)
  const checked = checkConnectionChange(parseBody(req), ownerOf(principal.project))
  if ("faults" in checked) throw invalidRequest(checked.faults, "The change")
  const changed = await connections.change(pathParameter(req, "name"), checked.body, precondition)
  sendRecord(call, changed, { record: await redacted(call, connections, changed) })
}

async function deleteConnection({ req, res }: Call, connections: Connections): Promise<void> {
  new Query(req).check()
  await connections.remove(pathParameter(req, "name"), preconditionOf(req))
  res.status(204).end()
}

/** The record without what opens the account. What decryption brings to light is the admins' alone, the rest of it too. */
async function redacted(call: Call, connections: Connections, connection: StoredConnection): Promise<ConnectionRecord> {
  if (call.principal.role !== "admin") return connectionRecordOf(connection)
  try {
    return connectionRecordOf(connection, withoutSecrets((await connections.credentialsOf(connection)) ?? {}))
  } catch (error) {
    // One that can't be opened must not take the others' list away; getting it says why.
    if (!(error instanceof Problem)) throw error
    call.req.log.warn({ connection: connection.metadata.name, err: error }, "credentials can't be opened")
    return connectionRecordOf(connection)
  }
}
