import Type, { type Static } from "typebox"
import { RunSchema, VM_STATES } from "./job.ts"
import { AGE_COLUMN, defineKind } from "./kind.ts"
import { LIMITS } from "./limits.ts"
import type { KubeObject, Stored } from "./meta.ts"
import { OfferSchema } from "./offer.ts"
import { ConditionList, Int, immutable, SENSITIVE, StringEnum, Text, Time } from "./schema.ts"

/** The life of one VM, in order. `refused`: the cloud said no and there never was a VM. */
export const LAUNCH_PHASES = [
  "requested",
  "created",
  "registered",
  "running",
  "finished",
  "terminating",
  "terminated",
  "refused",
] as const
export type LaunchPhase = (typeof LAUNCH_PHASES)[number]

/** Whether nothing of this Launch runs or is billed any more. */
export function isOver(launch: { status?: { phase?: LaunchPhase } }): boolean {
  return launch.status?.phase === "terminated" || launch.status?.phase === "refused"
}

/** Why a cloud refused a launch, in the words of the cloud errors that the controller acts on. */
export const REFUSALS = ["Capacity", "Quota", "Credentials", "Region", "InvalidRequest", "Unavailable"] as const

/** Why a cloud has given no answer: it, or the way to it, is out of order; or nobody may ask it any more. */
export const SILENCES = ["Unavailable", "Credentials"] as const

/**
 * Reasons why a VM ended before its job did. `PoweredOff` is a planned power-off of the machine that all VMs are on: it does not
 * count toward the VMs that a job may lose.
 */
export const LOSSES = ["VMLost", "Preempted", "KeyConflict", "Silent", "PoweredOff"] as const

/** Reasons why a VM can run no container, reported by the VM when it boots. */
export const BOOT_FAILURES = ["EngineUnavailable", "GPUUnavailable", "FirewallUnavailable"] as const

/** How a container, or what stands before it, ended. */
export const FINISH_REASONS = [
  "Succeeded",
  "ContainerFailed",
  "ImagePullFailed",
  "DeadlineExceeded",
  "VolumeMountFailed",
  "VolumeFlushFailed",
  "SecretMissing",
  "Stopped",
  "Preempted",
  "AgentFailed",
] as const
export type FinishReason = (typeof FINISH_REASONS)[number]

export const LaunchSpecSchema = Type.Object(
  {
    job: Type.Object(
      {
        namespace: Text(253, "Namespace of the Job."),
        name: Text(253, "Name of the Job."),
        uid: Text(64, "Uid of the Job."),
      },
      { description: "The Job that this VM is for." },
    ),
    number: Int({ minimum: 1, description: "Which launch of the Job this is." }),
    installation: Text(64, "Id of this Berth installation; every VM carries it as a tag."),
    offer: OfferSchema,
    project: Type.Optional(Text(40, "Project that pays: the credentials are sealed for it.")),
    connection: Type.Optional(Text(LIMITS.connectionName, "Connection whose account the VM is in.")),
    account: Type.Optional(Text(256, "The cloud's id of that account, project or subscription.")),
    sealedCredentials: Type.Optional(
      Text(65_536, "Copy of the connection's credentials, sealed, that ends the VM when the connection is gone.", {
        [SENSITIVE]: true,
      }),
    ),
    imageId: Type.Optional(Text(512, "The VM image.")),
    run: RunSchema,
    gatewayUrl: Text(2048, "Where the agent reports."),
    gatewayCa: Type.Optional(Text(65_536, "PEM of the CA of the gateway, where it is not a public one.")),
    agentImage: Type.Optional(Text(512, "Berth's own image, whose agent the VM runs; absent on the local cloud.")),
    bootDeadlineSeconds: Int({
      minimum: 1,
      description: "Seconds from the VM's creation until the container must have started.",
    }),
    lifetimeSeconds: Int({
      minimum: 1,
      description: "Seconds after its boot when the VM ends itself, whatever happens.",
    }),
    ended: Type.Optional(
      Type.Boolean({ default: false, description: "True: this VM shall be no more. Can't be taken back." }),
    ),
  },
  {
    description:
      "One VM, frozen when it was decided on: it can be ended after its Job, Connection and namespace are gone.",
    "x-kubernetes-validations": [
      ...immutable([
        "job",
        "number",
        "installation",
        "offer",
        "project",
        "connection",
        "account",
        "sealedCredentials",
        "imageId",
        "run",
        "gatewayUrl",
        "gatewayCa",
        "agentImage",
        "bootDeadlineSeconds",
        "lifetimeSeconds",
      ]),
      {
        rule: "!(has(oldSelf.ended) && oldSelf.ended) || (has(self.ended) && self.ended)",
        message: "ended can't be taken back",
        fieldPath: ".ended",
      },
    ],
  },
)
export type LaunchSpec = Static<typeof LaunchSpecSchema>

const FinishSchema = Type.Object({
  reason: StringEnum(FINISH_REASONS),
  exitCode: Type.Optional(Type.Integer()),
  message: Type.Optional(Text(LIMITS.message, "What there is to say about the end.")),
  time: Time("When, by the VM's clock."),
})
export type Finish = Static<typeof FinishSchema>

/** What the agent on the VM reported; written by the gateway only. */
export const AgentStatusSchema = Type.Object({
  signingKey: Text(512, "Public key (JWK) that the Launch is bound to."),
  encryptionKey: Text(512, "Public key (JWK) that secrets are encrypted to."),
  version: Type.Optional(Text(64, "Version of the agent.")),
  runtime: Type.Optional(Text(32, "docker, or process (no isolation, development only).")),
  registrationTime: Time("When the agent registered first."),
  conflictTime: Type.Optional(Time("When another key tried to register.")),
  sequence: Int({ description: "Number of the last report that was taken; older ones are dropped." }),
  retryCount: Int({ description: "Container runs after the first." }),
  startTime: Type.Optional(Time("When the container first started.")),
  lastHeartbeatTime: Type.Optional(Time("When the agent was last heard; written at most once a minute.")),
  preemptionNotice: Type.Optional(Time("When the cloud gave notice that it takes the VM back.")),
  lastExitCode: Type.Optional(Type.Integer({ description: "Exit code of the last attempt that failed." })),
  finish: Type.Optional(FinishSchema),
})
export type AgentStatus = Static<typeof AgentStatusSchema>

const BootFailureSchema = Type.Object(
  {
    reason: StringEnum(BOOT_FAILURES),
    message: Text(LIMITS.message, "What the VM found."),
    time: Time("Time at which the gateway received it."),
  },
  { description: "Why the VM can run no container, as it said itself before any agent ran. It has powered off." },
)
export type BootFailure = Static<typeof BootFailureSchema>

export const LaunchStatusSchema = Type.Object(
  {
    observedGeneration: Type.Optional(Int()),
    phase: Type.Optional(StringEnum(LAUNCH_PHASES)),
    message: Type.Optional(Text(LIMITS.message, "For people.")),
    conditions: Type.Optional(ConditionList),
    imageId: Type.Optional(
      Text(512, "The VM image, found out before the cloud was asked for the VM: every call says the same."),
    ),
    unanswered: Type.Optional(
      Type.Object(
        {
          class: StringEnum(SILENCES),
          message: Text(1024, "What the last attempt met."),
          since: Time("Since when each attempt has met it."),
        },
        { description: "Why the cloud has not said yet whether there is a VM. It is asked again and again." },
      ),
    ),
    vm: Type.Optional(
      Type.Object({
        state: StringEnum(VM_STATES),
        id: Type.Optional(Text(256, "The cloud's id of the VM.")),
        ipAddress: Type.Optional(Text(64, "Public address, where it has one.")),
        createTime: Type.Optional(Time("When billing began.")),
        terminationTime: Type.Optional(Time("When billing ended.")),
      }),
    ),
    refusal: Type.Optional(
      Type.Object({
        class: StringEnum(REFUSALS),
        code: Type.Optional(Text(128, "The cloud's own error code.")),
        message: Text(1024, "What the cloud said."),
        time: Time("When."),
      }),
    ),
    loss: Type.Optional(
      Type.Object({
        reason: StringEnum(LOSSES),
        message: Text(1024, "How it was noticed."),
        time: Time("When."),
      }),
    ),
    costUsd: Type.Optional(Type.Number({ minimum: 0, description: "US dollars; final once terminated." })),
    bootFailure: Type.Optional(BootFailureSchema),
    agent: Type.Optional(AgentStatusSchema),
  },
  {
    description:
      "What has happened so far: `agent` and `bootFailure` are written by the gateway, the rest by the launch controller.",
  },
)
export type LaunchStatus = Static<typeof LaunchStatusSchema>

export type Launch = KubeObject<LaunchSpec, LaunchStatus>
export type StoredLaunch = Stored<Launch>

/** Keeps a Launch until the cloud says that its VM is gone. */
export const LAUNCH_FINALIZER = "berth.dev/vm"

/** The name of a Job's n-th Launch, which makes a second Launch of that number impossible. */
export function launchName(jobUid: string, number: number): string {
  return `${jobUid}-${number}`
}

export const LAUNCH = defineKind({
  kind: "Launch",
  plural: "launches",
  singular: "launch",
  shortNames: ["blaunch"],
  namespaced: true,
  description: "One VM that was ever asked for. Written by Berth; not for tenants.",
  spec: LaunchSpecSchema,
  status: LaunchStatusSchema,
  printerColumns: [
    { name: "Phase", type: "string", jsonPath: ".status.phase" },
    { name: "Job", type: "string", jsonPath: ".spec.job.name" },
    { name: "Project", type: "string", jsonPath: ".spec.job.namespace" },
    { name: "Cloud", type: "string", jsonPath: ".spec.offer.cloud" },
    { name: "Type", type: "string", jsonPath: ".spec.offer.instanceType" },
    { name: "VM", type: "string", jsonPath: ".status.vm.id" },
    { name: "Heartbeat", type: "date", jsonPath: ".status.agent.lastHeartbeatTime" },
    AGE_COLUMN,
  ],
  selectableFields: [".status.phase", ".spec.job.uid", ".spec.job.namespace"],
})
