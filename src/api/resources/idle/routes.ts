import type { Principal } from "../../../core/identity/principal.ts"
import { namedSchema, pageSchema } from "../../http/json-schema.ts"
import { paging } from "../../http/query.ts"
import { json, noContent, type PathParameter, routeDeclarer } from "../../http/route.ts"
import type { IdleVms } from "./idle.ts"
import { type IdleVm, IdleVmRecordSchema } from "./schema.ts"

export interface IdleServices {
  idleOf: (principal: Principal) => IdleVms
}

const IDLE = namedSchema("IdleVm", IdleVmRecordSchema, {
  launch: "5ea07726-efd2-42ec-a095-6d7674666e31-1",
  job: "resize-4kzrd9wb",
  job_id: "5ea07726-efd2-42ec-a095-6d7674666e31",
  key: null,
  provider: "gcp",
  region: "europe-west4",
  zone: null,
  instance_type: "n2-standard-2",
  provisioning: "onDemand",
  connection: "my-gcp",
  vm_instance_id: "4711",
  hourly_price_usd: 0.0971,
  total_usd_per_hour: 0.1071,
  idle_since: "2026-11-01T12:00:00Z",
  idle_until: "2026-11-01T12:05:00Z",
  idle_usd: 0.0036,
} satisfies IdleVm)
const LIST = pageSchema("IdleList", "idle", IDLE)

const LAUNCH: PathParameter = {
  description: "Name of the Launch that has the VM.",
  example: "5ea07726-efd2-42ec-a095-6d7674666e31-1",
}

const route = routeDeclarer<Principal, IdleServices>({ tag: "idle" })

export const idleRoutes = [
  route("GET /idle", {
    id: "listIdleVms",
    summary: "List the VMs that wait for another job (`reuse`), with the cost of the wait.",
    role: "viewer",
    query: paging(),
    responses: { 200: json(LIST, "A page of idle VMs, the one that waits longest first.") },
    handle: ({ query: { offset, limit }, principal }, { idleOf }) => {
      const all = idleOf(principal).list()
      return { body: { idle: all.slice(offset, offset + limit), total: all.length, limit, offset } }
    },
  }),
  route("DELETE /idle/{launch}", {
    id: "endIdleVm",
    summary: "End a VM that waits for another job.",
    role: "developer",
    path: { launch: LAUNCH },
    problems: ["vm-taken"],
    responses: { 204: noContent("Ended. The operator deletes the VM.") },
    handle: ({ path, principal }, { idleOf }) => idleOf(principal).end(path.launch),
  }),
]
