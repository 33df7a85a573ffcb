import type { StoredMachine } from "../../../core/apis/machine.ts"
import type { Principal } from "../../../core/identity/principal.ts"
import { type Owner, toOwner } from "../../../core/records/owner.ts"
import { checked } from "../../http/checked.ts"
import { namedSchema, pageSchema } from "../../http/json-schema.ts"
import { paging } from "../../http/query.ts"
import { checkedBody, created, json, noContent, record, routeDeclarer } from "../../http/route.ts"
import { OWNER } from "../../owner.ts"
import { requireRepetition } from "../../repetition.ts"
import type { Joining, Machines } from "./machines.ts"
import {
  type MachineChange,
  MachineChangeSchema,
  type MachineCreation,
  MachineCreationSchema,
  MachineJoiningSchema,
  type MachineRecord,
  MachineRecordSchema,
} from "./schema.ts"
import { toMachineRecord } from "./translate.ts"

export interface MachineServices {
  machinesOf: (principal: Principal) => Machines
  /** Returns the name of the project's job that has a machine. */
  jobOn: (machine: StoredMachine) => string | undefined
}

const CREATION = { name: "workstation-1", hourly_price_usd: 0.2, region: "office" }

const RECORD = {
  ...{ id: "5b9c1f0e-71f3-4a49-9d1c-6d2f1f4be0aa", organization_id: "acme-x1", project_id: "reports-x2" },
  ...{ name: "workstation-1", status: "busy", reason: "Joined", message: "the host takes jobs at 0.2 USD/h" },
  job: "train-7",
  facts: {
    ...{ cpu: 32, memory_gib: 125.6, disk_gib: 811.4, architecture: "amd64" },
    ...{ gpu_model: "NVIDIA GeForce RTX 4090", gpu_count: 2, gpu_vram_gib: 24 },
  },
  ...{ agent_version: "0.2.0", hourly_price_usd: 0.2, region: "office", shared: false, unschedulable: false },
  ...{ lease_seconds: 900, joined_at: "2026-01-02T10:01:00Z", last_heartbeat_at: "2026-01-30T03:30:00Z" },
  lease_ends_at: "2026-01-30T03:46:00Z",
  ...{ created_at: "2026-01-02T10:00:00Z", updated_at: "2026-01-02T10:00:00Z" },
}

const MACHINE = namedSchema("MachineRecord", MachineRecordSchema, RECORD)
const JOINING = namedSchema("MachineJoining", MachineJoiningSchema, {
  ...RECORD,
  ...{ status: "pending", reason: null, message: null, job: null, facts: null, agent_version: null },
  ...{ joined_at: null, last_heartbeat_at: null, lease_ends_at: null },
  join: {
    ...{ token: "bmj1.the-token-is-shown-here-only-once", expires_at: "2026-01-02T11:00:00Z" },
    ...{ docker: "sudo docker run …", systemd: "sudo install -d …", source: null, note: null },
  },
})
const LIST = pageSchema("MachineList", "machines", MACHINE)

const RULES = [OWNER]

const CREATE = checkedBody<MachineCreation, Principal, MachineServices>("MachineCreation", MachineCreationSchema, {
  what: "The machine",
  example: CREATION,
  rules: RULES,
  check: (value, { principal: { project } }) =>
    checked<MachineCreation, Owner>(value, {
      ...{ schema: MachineCreationSchema, rules: RULES, context: toOwner(project) },
    }),
})

const CHANGE = checkedBody<MachineChange, Principal, MachineServices>("MachineChange", MachineChangeSchema, {
  what: "The change",
  example: { unschedulable: true },
  rules: RULES,
  check: (value, { principal: { project } }) =>
    checked<MachineChange, Owner>(value, {
      ...{ schema: MachineChangeSchema, rules: RULES, context: toOwner(project) },
    }),
})

const route = routeDeclarer<Principal, MachineServices>({ tag: "machines" })

/** Operations on the machines that the project owns. */
export const machineRoutes = [
  route("POST /machines", {
    id: "createMachine",
    summary: "Create a machine, and a token with which one host joins as it. Only this response has the token.",
    role: "admin",
    body: CREATE,
    idempotent: true,
    responses: {
      201: created(JOINING, "Created.", {
        links: {
          getMachine: { name: "$response.body#/id" },
          changeMachine: { name: "$response.body#/name" },
          createJoinToken: { name: "$response.body#/name" },
          deleteMachine: { name: "$response.body#/name" },
        },
      }),
    },
    creates: true,
    handle: async ({ body, idempotencyKey, principal }, services) => {
      const made = await services.machinesOf(principal).create(body, idempotencyKey)
      return { ...joinAnswer(made, principal, services), location: `/machines/${made.machine.metadata.uid}` }
    },
  }),
  route("GET /machines", {
    id: "listMachines",
    summary: "List the project's machines, newest first.",
    role: "viewer",
    query: paging(),
    responses: { 200: json(LIST, "A page of machines.") },
    handle: ({ query, principal }, services) => {
      const { objects, total } = services.machinesOf(principal).page(query)
      return { body: { machines: objects.map((one) => recordOf(one, principal, services)), total, ...query } }
    },
  }),
  route("GET /machines/{name}", {
    id: "getMachine",
    summary: "Get a machine.",
    role: "viewer",
    responses: { 200: record(MACHINE, "The machine.") },
    handle: async ({ path, principal }, services) =>
      answerOf(await services.machinesOf(principal).find(path.name), principal, services),
  }),
  route("PATCH /machines/{name}", {
    id: "changeMachine",
    summary: "Change a machine. unschedulable true drains it.",
    role: "admin",
    body: CHANGE,
    ifMatch: true,
    responses: { 200: record(MACHINE, "The changed machine.") },
    handle: async ({ path, body, precondition, principal }, services) => {
      const machines = services.machinesOf(principal)
      const { id, name, created_at } = recordOf(await machines.find(path.name), principal, services)
      requireRepetition("machine", body, { id, name, created_at })
      return answerOf(await machines.change(path.name, body, precondition), principal, services)
    },
  }),
  route("DELETE /machines/{name}", {
    id: "deleteMachine",
    summary: "Remove a machine. Its job ends, and gets another machine.",
    role: "admin",
    ifMatch: true,
    responses: { 204: noContent("Deleted. The machine is shown as removing until its job has ended.") },
    handle: ({ path, precondition, principal }, { machinesOf }) =>
      machinesOf(principal).remove(path.name, precondition),
  }),
  route("POST /machines/{name}/token", {
    id: "createJoinToken",
    summary: "Create another token with which one host joins as the machine, in place of the former host.",
    role: "admin",
    ifMatch: true,
    problems: ["project-limit"],
    responses: { 200: record(JOINING, "The machine with its token.") },
    handle: async ({ path, precondition, principal }, services) =>
      joinAnswer(await services.machinesOf(principal).issueToken(path.name, precondition), principal, services),
  }),
]

function recordOf(machine: StoredMachine, { project }: Principal, { jobOn }: MachineServices): MachineRecord {
  return toMachineRecord(machine, { owner: toOwner(project), job: jobOn(machine) })
}

function answerOf(machine: StoredMachine, principal: Principal, services: MachineServices) {
  return { of: machine, body: recordOf(machine, principal, services) }
}

/** Returns the response with a join token. No cache may keep it. */
function joinAnswer({ machine, join }: Joining, principal: Principal, services: MachineServices) {
  const body = { ...recordOf(machine, principal, services), join }
  return { of: machine, body, headers: { "Cache-Control": "no-store" } }
}
