import Type, { type Static } from "typebox"
import { LIMITS } from "./field-limits.ts"
import { AGE_COLUMN, defineKind, nameRules } from "./kind.ts"
import { GROUP, type KubeObject, type Stored } from "./meta.ts"
import { ARCHITECTURES } from "./offer.ts"
import { ConditionList, Int, ObservedGeneration, StringEnum, Text, Time } from "./schema.ts"

/** Name of the cloud of the machines that people own. A job's `cloud` may have it. */
export const OWN_CLOUD = "own"

/** Region of a machine that names none. */
export const OWN_REGION = "own"

/** Limits of a machine's lease, seconds. */
export const MACHINE_LEASE = { least: 120, default: 900, most: 86_400 } as const

export const MachineSpecSchema = Type.Object(
  {
    hourlyPriceUsd: Type.Optional(
      Type.Number({
        minimum: 0,
        maximum: LIMITS.maxHourlyPriceUsd,
        default: 0,
        description: "Price of the machine while it runs a job, USD per hour. Jobs are charged with it. Default: 0.",
      }),
    ),
    region: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: LIMITS.region,
        pattern: "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        default: OWN_REGION,
        description: "Region of the machine. A job's `region` may name it. Default: own.",
        "x-berth-allowed": "a-z, 0-9 and -, with a letter or digit at both ends",
      }),
    ),
    shared: Type.Optional(
      Type.Boolean({
        default: false,
        description:
          "True: jobs of every project may run on the machine, one after the other. Only an administrator of the cluster may set it.",
      }),
    ),
    unschedulable: Type.Optional(
      Type.Boolean({ default: false, description: "True: the machine gets no other job. Its present one runs on." }),
    ),
    leaseSeconds: Type.Optional(
      Int({
        minimum: MACHINE_LEASE.least,
        maximum: MACHINE_LEASE.most,
        default: MACHINE_LEASE.default,
        description:
          "Seconds without an answer of Berth after which the machine ends its job by itself, and Berth gives the job another machine.",
      }),
    ),
    joinNumber: Type.Optional(
      Int({
        default: 0,
        description: "Number of join tokens that were issued. Only the last one is valid, once, until it expires.",
      }),
    ),
  },
  { description: "A machine that someone owns. Jobs run on it, one at a time." },
)
export type MachineSpec = Static<typeof MachineSpecSchema>

/** Resources of a host, as its agent has found them. */
export const MachineFactsSchema = Type.Object(
  {
    cpu: Type.Number({ minimum: 0, description: "Number of vCPUs." }),
    memoryGib: Type.Number({ minimum: 0, description: "Memory, GiB." }),
    diskGib: Type.Number({ minimum: 0, description: "Free space for images and data of jobs when it joined, GiB." }),
    architecture: StringEnum(ARCHITECTURES, { description: "Architecture of the CPUs." }),
    gpu: Type.Optional(
      Type.Object(
        {
          model: Text(LIMITS.gpuModel, "Model of the cards, as nvidia-smi names it."),
          count: Int({ minimum: 1, maximum: LIMITS.gpuCount, description: "Number of cards." }),
          vramGib: Type.Number({ minimum: 0, description: "Memory of one card, GiB." }),
        },
        { description: "NVIDIA cards, all of one model. Absent: none, or of several models." },
      ),
    ),
  },
  { description: "What the host has, as its agent has found it." },
)
export type MachineFacts = Static<typeof MachineFactsSchema>

/** Reports of the host's agent. Only the gateway writes them. */
export const HostSchema = Type.Object(
  {
    joinNumber: Int({ description: "Number of the join token that the host has used." }),
    joinTime: Time("Time at which the host joined."),
    signingKey: Text(512, "Public key (JWK) of the host's agent. The machine accepts no other."),
    encryptionKey: Text(512, "Public key (JWK) with which its jobs' boot configs are encrypted."),
    version: Text(64, "Version of the agent."),
    facts: MachineFactsSchema,
    sequence: Int({ description: "Sequence number of the last message that changed this status." }),
    lastHeartbeatTime: Time("Time of the last heartbeat that was written. The lease counts from it."),
    leaseSeconds: Int({ description: "Seconds of the lease that the host was granted with that heartbeat." }),
    running: Type.Optional(Text(253, "Launch whose run the host has: from its order until nothing of it is left.")),
    freed: Type.Optional(Text(253, "Last Launch of which nothing is left on the host.")),
    freedTime: Type.Optional(Time("Time from which nothing of it is left.")),
    unfit: Type.Optional(Text(LIMITS.message, "Reason why the host can run no job.")),
  },
  { description: "Reports of the host's agent." },
)
export type Host = Static<typeof HostSchema>

/** Number of earlier Launches that a machine remembers: more than can have it between two lists of the operator. */
export const PREVIOUS_LAUNCHES = 8

const LAUNCH_FIELDS = {
  name: Text(253, "Name of the Launch."),
  installation: Text(64, "Id of the Berth installation."),
  namespace: Text(253, "Namespace of its Job."),
  region: Text(LIMITS.region, "Region of the machine when the Launch got it."),
  specDigest: Text(128, "Digest of the request. An identical request finds this one."),
  createTime: Time("Time from which the Launch has the machine."),
}

/** Launch that has the machine, or had it last. Only the operator writes it. */
export const MachineLaunchSchema = Type.Object(
  {
    ...LAUNCH_FIELDS,
    endTime: Type.Optional(Time("Time at which Berth has asked for the end of the run.")),
    lostTime: Type.Optional(Time("Time at which the lease of the silent host was over, so that nothing of it runs.")),
    previous: Type.Optional(
      Type.Array(
        Type.Object({ ...LAUNCH_FIELDS, terminationTime: Time("Time from which the Launch had the machine no more.") }),
        { maxItems: PREVIOUS_LAUNCHES, description: "Launches that had the machine before, the last one first." },
      ),
    ),
  },
  { description: "Launch that has the machine, or had it last." },
)
export type MachineLaunch = Static<typeof MachineLaunchSchema>

/** Launch that had the machine before the present one. */
export type PreviousLaunch = NonNullable<MachineLaunch["previous"]>[number]

export const MachineStatusSchema = Type.Object({
  observedGeneration: ObservedGeneration,
  conditions: Type.Optional(ConditionList),
  host: Type.Optional(HostSchema),
  launch: Type.Optional(MachineLaunchSchema),
})
export type MachineStatus = Static<typeof MachineStatusSchema>

export type Machine = KubeObject<MachineSpec, MachineStatus>
export type StoredMachine = Stored<Machine>

/** Holds a Machine until nothing of a job can run on it any more. */
export const MACHINE_FINALIZER = `${GROUP}/machine`

/** The types of a Machine's conditions. Tools that support kstatus read them. A job is no condition: `status` names it. */
export const MachineCondition = {
  Ready: "Ready",
  Reconciling: "Reconciling",
  Stalled: "Stalled",
} as const

/** Reasons of its conditions and events. */
export const MachineReason = {
  /** No host has joined yet. */
  NotJoined: "NotJoined",
  /** The host answers, and takes jobs. */
  Joined: "Joined",
  /** The host has sent nothing for some time. */
  Silent: "Silent",
  /** The host's lease has ended: nothing runs on it. */
  LeaseExpired: "LeaseExpired",
  /** The host can run no job: its engine, its disk, or the clean-up after a job failed. */
  Unfit: "Unfit",
  /** The host is heard of again after its lease has ended. It has not said yet that nothing of its last job is left. */
  CleaningUp: "CleaningUp",
  /** `unschedulable` is set. */
  Unschedulable: "Unschedulable",
  /** The project has more machines than it may have, and this is one of the newest. */
  ProjectLimit: "ProjectLimit",
  /** The namespace belongs to no Project. */
  NoProject: "NoProject",
  /** The machine is deleted, and a job may still run on it. */
  Removing: "Removing",
} as const
export type MachineReason = (typeof MachineReason)[keyof typeof MachineReason]

export const MACHINE = defineKind({
  kind: "Machine",
  plural: "machines",
  singular: "machine",
  shortNames: ["bm"],
  namespaced: true,
  description: "A machine that someone owns, on which Berth runs jobs.",
  spec: MachineSpecSchema,
  status: MachineStatusSchema,
  conditions: Object.values(MachineCondition),
  rules: nameRules(LIMITS.machineName),
  printerColumns: [
    { name: "Ready", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].status" },
    { name: "Reason", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].reason" },
    { name: "CPU", type: "number", jsonPath: ".status.host.facts.cpu" },
    { name: "Memory", type: "number", jsonPath: ".status.host.facts.memoryGib" },
    { name: "GPU", type: "string", jsonPath: ".status.host.facts.gpu.model" },
    { name: "Job", type: "string", jsonPath: ".status.host.running", priority: 1 },
    AGE_COLUMN,
  ],
})
