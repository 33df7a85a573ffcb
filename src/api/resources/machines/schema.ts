import Type, { type Static } from "typebox"
import { LIMITS } from "../../../core/apis/field-limits.ts"
import { MACHINE_LEASE, MachineSpecSchema } from "../../../core/apis/machine.ts"
import { ARCHITECTURES } from "../../../core/apis/offer.ts"
import { COMPONENT, StringEnum } from "../../../core/apis/schema.ts"
import { conditionsField, ignoredConditions } from "../../../core/records/conditions.ts"
import { MACHINE_STATES } from "../../../core/records/machine.ts"
import { nullable } from "../../../core/records/nullable.ts"
import { nameSchema } from "../../names.ts"
import { Ignored, Repeated } from "../../repetition.ts"
import { JobSubmissionSchema } from "../jobs/schema.ts"

const { project_id, organization_id } = JobSubmissionSchema.properties
const { hourlyPriceUsd, region, shared, unschedulable } = MachineSpecSchema.properties

const settings = {
  hourly_price_usd: hourlyPriceUsd,
  region,
  shared,
  unschedulable,
  lease_seconds: Type.Optional(
    Type.Integer({
      minimum: MACHINE_LEASE.least,
      maximum: MACHINE_LEASE.most,
      default: MACHINE_LEASE.default,
      description:
        "Seconds without an answer of Berth after which the machine ends its job by itself, and Berth gives the job another machine.",
    }),
  ),
}

/** Body of POST /machines. */
export const MachineCreationSchema = Type.Object(
  { name: nameSchema("machine"), ...settings, ...{ project_id, organization_id } },
  { description: "New machine." },
)
export type MachineCreation = Static<typeof MachineCreationSchema>

/** Body of PATCH /machines/{name}. Omitted and null fields are unchanged. */
export const MachineChangeSchema = Type.Object(
  {
    ...settings,
    conditions: ignoredConditions(),
    facts: Type.Optional(Type.Unsafe<unknown>({ type: ["object", "null"], description: "Ignored." })),
    ...{ project_id, organization_id, id: Repeated(), name: Repeated(), created_at: Repeated() },
    ...Object.fromEntries(
      [
        ...["updated_at", "status", "reason", "message", "job", "agent_version"],
        ...["joined_at", "last_heartbeat_at", "lease_ends_at"],
      ].map((field) => [field, Ignored()]),
    ),
  },
  { description: "Change of a machine." },
)
export type MachineChange = Partial<
  Pick<MachineCreation, "hourly_price_usd" | "region" | "shared" | "unschedulable" | "lease_seconds">
>

const FactsRecordSchema = Type.Object(
  {
    cpu: Type.Number({ description: "Number of vCPUs." }),
    memory_gib: Type.Number({ description: "Memory, GiB." }),
    disk_gib: Type.Number({ description: "Free space for images and data of jobs when it joined, GiB." }),
    architecture: StringEnum(ARCHITECTURES),
    gpu_model: nullable<string>("string", "Model of the cards. Null: none, or of several models."),
    gpu_count: Type.Integer({ description: "Number of cards." }),
    gpu_vram_gib: nullable<number>("number", "Memory of one card, GiB."),
  },
  { [COMPONENT]: "MachineFacts", description: "What the host has, as its agent has found it." },
)

const recordFields = {
  id: Type.String({ description: "UUID." }),
  organization_id: Type.String(),
  project_id: Type.String(),
  name: Type.String(),
  status: StringEnum(MACHINE_STATES, {
    description:
      "pending: it waits for its host, or for a place in the project. draining: it gets no other job, and its present one runs on. silent: its host has sent nothing for some time.",
  }),
  reason: nullable<string>("string", "Reason why the machine gets jobs or does not, one word. Null: not known yet."),
  message: nullable<string>("string", "Explanation of the reason for people."),
  job: nullable<string>("string", "Name of the project's job that has the machine. Null: none, or another project's."),
  facts: Type.Union([FactsRecordSchema, Type.Null()], { description: "Null: no host has joined yet." }),
  agent_version: nullable<string>("string", "Version of the host's agent."),
  hourly_price_usd: Type.Number({ description: "Price of the machine while it runs a job, USD per hour." }),
  region: Type.String({ maxLength: LIMITS.region }),
  shared: Type.Boolean({ description: "True: jobs of every project may run on it." }),
  unschedulable: Type.Boolean({ description: "True: it gets no other job." }),
  lease_seconds: Type.Integer({ description: "Seconds without an answer of Berth after which it ends its job." }),
  joined_at: nullable<string>("string", "Time at which its host joined."),
  last_heartbeat_at: nullable<string>("string", "Time of the host's last heartbeat that is stored."),
  lease_ends_at: nullable<string>(
    "string",
    "Time at which nothing of a job runs on it unless the host is heard of again.",
  ),
  conditions: conditionsField(),
  created_at: Type.String(),
  updated_at: Type.String(),
}

/** Record of a machine. */
export const MachineRecordSchema = Type.Object(recordFields)
export type MachineRecord = Static<typeof MachineRecordSchema>

/** Way for a host to join as a machine, once. */
export const MachineJoinSchema = Type.Object(
  {
    token: Type.String({ description: "Join token. A later one makes it invalid." }),
    expires_at: Type.String({ description: "Time until which a host can join with it." }),
    docker: nullable<string>(
      "string",
      "Command for a shell of the host that runs the agent in its Docker engine. Null: the note says why.",
    ),
    systemd: nullable<string>("string", "Command that runs the agent by systemd and Node.js instead."),
    source: nullable<string>(
      "string",
      "Command that runs the agent from the source of an installation for development. Null: this is another one.",
    ),
    note: nullable<string>("string", "Reason why commands are missing, and which setting gives them. Null: none is."),
  },
  { [COMPONENT]: "MachineJoin", description: "Way for one host to join as the machine. Only this response has it." },
)
export type MachineJoin = Static<typeof MachineJoinSchema>

/** Response with a join token. */
export const MachineJoiningSchema = Type.Object({ ...recordFields, join: MachineJoinSchema })
