import Type, { type Static } from "typebox"
import { timestamp } from "./clock.ts"
import { VmDiskSchema } from "./disk.ts"
import { LIMITS } from "./field-limits.ts"
import { LaunchLabelsSchema, RunSchema, VM_STATES } from "./job.ts"
import { AGE_COLUMN, defineKind } from "./kind.ts"
import type { KubeObject, Stored } from "./meta.ts"
import { OfferSchema } from "./offer.ts"
import { CostPartsSchema, type HourlyPrices, HourlyPricesSchema } from "./price.ts"
import { REFUSALS } from "./refusals.ts"
import { ConditionList, Int, ObservedGeneration, SENSITIVE, StringEnum, Text, Time } from "./schema.ts"
import { UsageSchema } from "./usage.ts"
import { VmProxySchema } from "./vm-proxy.ts"
import { VmNetworkSchema } from "./vm-settings.ts"

/**
 * Phases of one VM, in order. `idle`: its job has ended, and it waits for another one. `handedOver`: another Launch has
 * the VM now. `refused`: the cloud rejected the request and no VM existed.
 */
export const LAUNCH_PHASES = [
  "requested",
  "created",
  "registered",
  "running",
  "finished",
  "idle",
  "terminating",
  "terminated",
  "handedOver",
  "refused",
] as const
export type LaunchPhase = (typeof LAUNCH_PHASES)[number]

/** Types of conditions. A Launch has none until its first status write. */
export const LaunchCondition = { Ready: "Ready", Reconciling: "Reconciling", Stalled: "Stalled" } as const

const LAST_PHASES: readonly (LaunchPhase | undefined)[] = ["terminated", "handedOver", "refused"]

/** Returns true if the Launch has no VM that runs or is billed: it never had one, it is deleted, or another Launch has it. */
export function isOver(launch: { status?: { phase?: LaunchPhase } }): boolean {
  return LAST_PHASES.includes(launch.status?.phase)
}

/** Heartbeats that are not in the Launches, by the Launch's name. */
export interface HeartbeatTimes {
  /** Returns the time of the last heartbeat; undefined if none is known. */
  get(launch: string): Date | undefined
}

/** Returns the Launch with its agent's last heartbeat: that of its status, or the later one of `heartbeats`. */
export function withHeartbeat(launch: StoredLaunch, heartbeats: HeartbeatTimes | undefined): StoredLaunch {
  const { status } = launch
  const heard = status?.agent && heartbeats?.get(launch.metadata.name)
  if (heard === undefined) return launch
  const lastHeartbeatTime = timestamp(heard)
  const known = status?.agent?.lastHeartbeatTime
  if (known !== undefined && Date.parse(known) >= Date.parse(lastHeartbeatTime)) return launch
  return { ...launch, status: { ...status, agent: { ...status?.agent, lastHeartbeatTime } as AgentStatus } }
}

/** Classes of a missing answer: the cloud is unreachable, or rejects the credentials. */
export const LAUNCH_ERROR_CLASSES = ["Unavailable", "Credentials"] as const

/**
 * Reasons why a VM ended before its job. `PoweredOff` is a planned power-off of the host of local VMs. It does not
 * count toward the VMs that a job may lose.
 */
export const LOSSES = ["VMLost", "Preempted", "KeyConflict", "Silent", "PoweredOff"] as const

/** Reasons why a VM cannot run containers. The VM reports them at boot, to the gateway or on its console. */
export const BOOT_FAILURES = [
  "EngineUnavailable",
  "GPUUnavailable",
  "FirewallUnavailable",
  "AgentUnavailable",
  "DiskFull",
  "GatewayUnreachable",
] as const

/** Reasons why a run ended, in the container or before its start. */
export const FINISH_REASONS = [
  "Succeeded",
  "ContainerFailed",
  "ImagePullFailed",
  "RegistryUnavailable",
  "DeadlineExceeded",
  "BudgetExceeded",
  "VolumeMountFailed",
  "VolumeFlushFailed",
  "SecretMissing",
  "WorkdirMissing",
  "WorkdirFailed",
  "Stopped",
  "Preempted",
  "AgentFailed",
  "MachineFailed",
] as const
export type FinishReason = (typeof FINISH_REASONS)[number]

/** Causes of an end that its reason and exit code do not say. Retry rules name OutOfMemory beside the reasons. */
export const FINISH_CAUSES = ["OutOfMemory", "Idle"] as const
export type FinishCause = (typeof FINISH_CAUSES)[number]

export const LaunchSpecSchema = Type.Object(
  {
    job: Type.Object(
      {
        namespace: Text(253, "Namespace of the Job."),
        name: Text(253, "Name of the Job."),
        uid: Text(64, "Uid of the Job."),
      },
      { description: "Job that this VM runs." },
    ),
    number: Int({ minimum: 1, description: "Number of this Launch among the Job's Launches, from 1." }),
    takesOver: Type.Optional(Text(253, "Launch whose idle VM this one takes over. Absent: it creates a VM.")),
    root: Type.Optional(
      Text(253, "Launch that created the VM, whose name the VM has as a tag. Absent: this Launch creates it."),
    ),
    installation: Text(64, "Id of this Berth installation. Every VM has it as a tag."),
    offer: OfferSchema,
    hourlyPrices: Type.Optional(HourlyPricesSchema),
    ceilingUsd: Type.Optional(
      Type.Number({
        minimum: 0,
        description:
          "Highest price of a spot machine by a strict limit or the job's maxHourlyPriceUsd, USD per hour. AWS and Azure end the VM above it. On Google Cloud and Nebius it is the on-demand price, for strict limits only.",
      }),
    ),
    reservedUsd: Type.Optional(
      Type.Number({
        minimum: 0,
        description:
          "Amount that the VM takes from the caps of a month while it runs, USD: the most until its deadline under a strict limit, otherwise its expected cost.",
      }),
    ),
    organization: Type.Optional(Text(63, "Organization of the project that pays.")),
    project: Type.Optional(Text(40, "Project that pays. The credentials are encrypted for it.")),
    connection: Type.Optional(Text(LIMITS.connectionName, "Connection of the account that has the VM.")),
    account: Type.Optional(Text(256, "Id of the account, project or subscription in the cloud.")),
    sealedCredentials: Type.Optional(
      Text(
        65_536,
        "Encrypted copy of the connection's credentials. It terminates the VM after the connection is deleted.",
        {
          [SENSITIVE]: true,
        },
      ),
    ),
    labels: LaunchLabelsSchema,
    cronJob: Type.Optional(Text(64, "Uid of the CronJob that created the Job.")),
    cronJobName: Type.Optional(Text(LIMITS.cronJobName, "Name of the CronJob, by which its costs are shown.")),
    concurrencyGroup: Type.Optional(Text(LIMITS.groupName, "Concurrency group of the Job.")),
    imageId: Type.Optional(Text(512, "Id of the VM image.")),
    network: Type.Optional(VmNetworkSchema),
    disk: Type.Optional(VmDiskSchema),
    run: RunSchema,
    gatewayUrl: Text(2048, "URL to which the agent sends its reports."),
    gatewayCa: Type.Optional(Text(65_536, "PEM of authorities that the VM trusts in addition to the public ones.")),
    proxy: Type.Optional(VmProxySchema),
    agentImage: Type.Optional(
      Text(512, "Berth's image with the agent that runs on the VM. Absent on the local cloud."),
    ),
    volumesImage: Type.Optional(
      Text(512, "Berth's image with rclone, which mounts the job's volumes. Absent without volumes."),
    ),
    bootDeadlineSeconds: Int({
      minimum: 1,
      description: "Maximum seconds from the VM's creation until its agent registers.",
    }),
    startDeadlineSeconds: Int({
      minimum: 1,
      description: "Maximum seconds from the agent's registration to the container's start.",
    }),
    lifetimeSeconds: Int({
      minimum: 1,
      description: "Seconds after boot at which the VM terminates itself in any case.",
    }),
    vmLifetimeSeconds: Type.Optional(
      Int({
        minimum: 1,
        description:
          "Seconds after the VM's first boot at which it powers itself off, whichever job it has then. Absent: lifetimeSeconds.",
      }),
    ),
    budgetSeconds: Type.Optional(
      Int({
        minimum: 1,
        description: "Seconds after boot at which the agent ends the container, because the job's maxCostUsd is spent.",
      }),
    ),
    ended: Type.Optional(
      Type.Boolean({ default: false, description: "Set to true to terminate this VM. Irreversible." }),
    ),
  },
  {
    description:
      "Specification of one VM, immutable. It is complete, so the VM can be terminated after its Job, Connection and namespace are deleted.",
  },
)
export type LaunchSpec = Static<typeof LaunchSpecSchema>

const FinishSchema = Type.Object({
  reason: StringEnum(FINISH_REASONS),
  exitCode: Type.Optional(Type.Integer()),
  message: Type.Optional(Text(LIMITS.message, "Details of the end.")),
  cause: Type.Optional(StringEnum(FINISH_CAUSES, { description: "Cause of a failed container, if it is known." })),
  transient: Type.Optional(
    Type.Boolean({ description: "True if another VM may succeed: the fault is not the job's own." }),
  ),
  lastLine: Type.Optional(Text(LIMITS.lastLine, "Last line of a failed container's output, without secrets.")),
  usage: Type.Optional(UsageSchema),
  keptUntil: Type.Optional(Time("Time until which the VM is kept for sessions after a failure.")),
  time: Time("Time of the end, by the VM's clock."),
})
export type Finish = Static<typeof FinishSchema>

/** Reports of the agent on the VM. Only the gateway writes them. */
export const AgentStatusSchema = Type.Object({
  signingKey: Text(512, "Public key (JWK) of the agent. The Launch accepts no other."),
  encryptionKey: Text(512, "Public key (JWK) with which secrets are encrypted."),
  version: Type.Optional(Text(64, "Version of the agent.")),
  runtime: Type.Optional(Text(32, "Container runtime: docker, or process (no isolation, development only).")),
  abilities: Type.Optional(
    Type.Array(Text(32, "Ability."), { maxItems: 16, description: "What this agent can do that older ones can't." }),
  ),
  registrationTime: Time("Time of the agent's first registration."),
  conflictTime: Type.Optional(Time("Time at which a second key tried to register.")),
  sequence: Int({ description: "Sequence number of the last accepted report. Older reports are dropped." }),
  retryCount: Int({ description: "Number of container restarts." }),
  startTime: Type.Optional(Time("Time of the container's first start.")),
  lastHeartbeatTime: Type.Optional(
    Time("Time of the last report that changed this status. Later heartbeats are in Leases of berth-identities."),
  ),
  preemptionNotice: Type.Optional(Time("Time of the cloud's preemption notice.")),
  lastExitCode: Type.Optional(Type.Integer({ description: "Exit code of the last failed attempt." })),
  finish: Type.Optional(FinishSchema),
  idleTime: Type.Optional(Time("Time from which the VM waits for another job. Nothing of its job is left on it.")),
  leaveTime: Type.Optional(Time("Time at which the VM stopped waiting. No other job can take it over any more.")),
  unfit: Type.Optional(Text(LIMITS.message, "Reason why no other job may have this VM.")),
})
export type AgentStatus = Static<typeof AgentStatusSchema>

const bootFailure = (time: string, description: string) =>
  Type.Object(
    {
      reason: StringEnum(BOOT_FAILURES),
      message: Text(LIMITS.message, "Message of the VM."),
      time: Time(time),
    },
    { description },
  )
const BootFailureSchema = bootFailure(
  "Time at which the gateway received the report.",
  "Failure that the VM reported before the agent started. The VM cannot run containers and has powered off.",
)
export type BootFailure = Static<typeof BootFailureSchema>

/** Maximum number of machine types and series that a rejection names. */
export const RESTRICTED_MACHINES = 512

export const LaunchStatusSchema = Type.Object(
  {
    observedGeneration: ObservedGeneration,
    phase: Type.Optional(StringEnum(LAUNCH_PHASES)),
    message: Type.Optional(Text(LIMITS.message, "Explanation for people.")),
    conditions: Type.Optional(ConditionList),
    imageId: Type.Optional(
      Text(512, "Id of the VM image, resolved before the first request. Every retry uses the same image."),
    ),
    exhaustedSubnets: Type.Optional(
      Int({
        description: "Number of subnets that had no capacity for this VM. The next request names the next subnet.",
      }),
    ),
    unanswered: Type.Optional(
      Type.Object(
        {
          class: StringEnum(LAUNCH_ERROR_CLASSES),
          message: Text(1024, "Error of the last attempt."),
          since: Time("Time of the first attempt with this error."),
        },
        { description: "Error while the cloud does not say whether the VM exists. Berth retries." },
      ),
    ),
    vm: Type.Optional(
      Type.Object({
        state: StringEnum(VM_STATES),
        id: Type.Optional(Text(256, "Id of the VM in the cloud.")),
        ipAddress: Type.Optional(Text(64, "Public IP address of the VM, if it has one.")),
        createTime: Type.Optional(Time("Time at which billing began.")),
        bootTime: Type.Optional(
          Time("Time at which the billing of a VM that was taken over began, under its first Launch."),
        ),
        terminationTime: Type.Optional(Time("Time at which billing ended.")),
        preempted: Type.Optional(
          Type.Boolean({
            description: "True if the cloud itself says that it took the VM back. An agent's word is in `agent`.",
          }),
        ),
      }),
    ),
    refusal: Type.Optional(
      Type.Object({
        class: StringEnum(REFUSALS),
        code: Type.Optional(Text(128, "Error code of the cloud.")),
        message: Text(1024, "Message of the cloud."),
        time: Time("Time of the rejection."),
        machines: Type.Optional(
          Type.Array(Text(64, "Machine type, or series of machine types."), {
            maxItems: RESTRICTED_MACHINES,
            description: "Machines that the account may not use in this region, if the cloud lists them.",
          }),
        ),
      }),
    ),
    loss: Type.Optional(
      Type.Object({
        reason: StringEnum(LOSSES),
        message: Text(1024, "Evidence of the loss."),
        time: Time("Time at which the loss was detected."),
      }),
    ),
    handedTo: Type.Optional(Text(253, "Launch that has taken over the VM.")),
    costUsd: Type.Optional(Type.Number({ minimum: 0, description: "Cost in USD. Final once terminated." })),
    cost: Type.Optional(CostPartsSchema),
    idleUsd: Type.Optional(
      Type.Number({ minimum: 0, description: "Part of the cost in which the VM waited for another job, USD." }),
    ),
    bootFailure: Type.Optional(BootFailureSchema),
    consoleFailure: Type.Optional(
      bootFailure(
        "Time at which Berth read the console.",
        "Failure that the VM wrote on its serial console, because it could not report it. The VM cannot run containers.",
      ),
    ),
    agent: Type.Optional(AgentStatusSchema),
  },
  {
    description: "Observed state. The gateway writes `agent` and `bootFailure`, the launch controller the rest.",
  },
)
export type LaunchStatus = Static<typeof LaunchStatusSchema>

/** Returns the failure with which a VM says that it cannot run containers: reported, or read from its console. */
export function bootFailureOf(status: LaunchStatus | undefined): BootFailure | undefined {
  return status?.bootFailure ?? status?.consoleFailure
}

export type Launch = KubeObject<LaunchSpec, LaunchStatus>
export type StoredLaunch = Stored<Launch>

/** Returns the prices of a VM's parts. A Launch that names none has only the machine's. */
export function pricesOf({ spec: { offer, hourlyPrices } }: Pick<Launch, "spec">): HourlyPrices {
  return hourlyPrices ?? { machineUsd: offer.hourlyPriceUsd, diskUsd: 0, addressUsd: 0 }
}

/** Returns the highest prices of a VM's parts that strict limits count. A spot machine's price may rise to its ceiling. */
export function highestPricesOf(launch: Pick<Launch, "spec">): HourlyPrices {
  const prices = pricesOf(launch)
  return { ...prices, machineUsd: Math.max(prices.machineUsd, launch.spec.ceilingUsd ?? 0) }
}

/**
 * Returns the time of the first message that the gateway accepted from a Launch's VM. It proves that there was a VM,
 * whatever the cloud answered. Undefined: there was none.
 */
export function firstMessageTime(status: LaunchStatus | undefined): string | undefined {
  return status?.agent?.registrationTime ?? status?.bootFailure?.time
}

/** Finalizer that holds a Launch until the cloud reports that its VM is deleted, or another Launch has the VM. */
export const LAUNCH_FINALIZER = "berth.dev/vm"

/** Returns the name of a Job's n-th Launch. The name makes a second Launch with this number impossible. */
export function launchName(jobUid: string, number: number): string {
  return `${jobUid}-${number}`
}

/** Returns the uid of the job that a Launch's name has. */
export function jobUidOf(launchName: string): string {
  return launchName.slice(0, launchName.lastIndexOf("-"))
}

export const LAUNCH = defineKind({
  kind: "Launch",
  plural: "launches",
  singular: "launch",
  shortNames: ["blaunch"],
  namespaced: true,
  description: "A VM that Berth requested from a cloud. Berth writes it; tenants do not.",
  spec: LaunchSpecSchema,
  status: LaunchStatusSchema,
  conditions: Object.values(LaunchCondition),
  owned: ["spec", "status"],
  printerColumns: [
    { name: "Phase", type: "string", jsonPath: ".status.phase" },
    { name: "Job", type: "string", jsonPath: ".spec.job.name" },
    { name: "Project", type: "string", jsonPath: ".spec.job.namespace" },
    { name: "Cloud", type: "string", jsonPath: ".spec.offer.cloud", priority: 1 },
    { name: "Type", type: "string", jsonPath: ".spec.offer.instanceType", priority: 1 },
    AGE_COLUMN,
  ],
  selectableFields: [".status.phase", ".spec.job.uid", ".spec.job.namespace"],
})
