import type { Router } from "express"
import { fromMetadataName } from "../../apis/names.ts"
import { Query } from "../../http/query.ts"
import type { Principal } from "../../identity/principal.ts"
import type { Connections } from "../connections/connections.ts"
import { type Admission, type Call, endpoint } from "../endpoint.ts"
import type { Discovered, Discoverer, DiscoverySort } from "./discoverer.ts"
import { PARTIAL_RESULT, partialResult } from "./partial-result.ts"
import type { DiscoveredItem } from "./schema.ts"

export interface ResourceRouteOptions {
  /** With the limit of discovery, which is tighter than that of other requests. */
  admission: Admission
  connectionsOf: (principal: Principal) => Pick<Connections, "all" | "find">
  discover: Discoverer
}

/** The contract's discovery endpoints: the path and the property that has the items. */
const ENDPOINTS: readonly { path: string; property: string; sort: DiscoverySort }[] = [
  { path: "/resources/storages", property: "storages", sort: "storages" },
  { path: "/resources/repositories", property: "repositories", sort: "repositories" },
  { path: "/resources/virtual-machine-pools", property: "virtual_machine_pools", sort: "virtualMachinePools" },
]

export function resourceRoutes(router: Router, { admission, connectionsOf, discover }: ResourceRouteOptions): void {
  for (const { path, property, sort } of ENDPOINTS) {
    const handle = async (call: Call): Promise<void> => {
      const connections = await asked(call, connectionsOf(call.principal))
      const discovered = await discover(sort, connections)
      tellFailures(call, discovered)
      call.res.json({ [property]: discovered.found.map(itemOf) })
    }
    endpoint(router, path, { GET: { role: "viewer", handle } }, admission)
  }
}

/** The one connection of the filter, or all: the contract has it be a string or null. @throws Problem 404, 503 */
async function asked({ req }: Call, connections: Pick<Connections, "all" | "find">) {
  const query = new Query(req)
  const id = query.filter("connection_id")
  query.check()
  return id === undefined || id === "null" ? connections.all() : [await connections.find(id)]
}

/** A connection that failed takes nothing from the others; who asked is told which, and the log as well. */
function tellFailures({ req, res }: Call, { failures }: Discovered): void {
  if (failures.length === 0) return
  res.set(PARTIAL_RESULT, partialResult(failures))
  for (const { connection, reason, message } of failures) {
    const name = fromMetadataName(connection.metadata.name)
    req.log.warn({ connection: name, type: connection.spec.type, reason, message }, "discovery by a connection failed")
  }
}

function itemOf({ connection, resource }: Discovered["found"][number]): DiscoveredItem {
  const { id, name, platform, type, metadata } = resource
  return {
    id,
    name,
    connection_id: connection.metadata.uid,
    connection_type: connection.spec.type,
    platform,
    type,
    metadata,
  }
}
