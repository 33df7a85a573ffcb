import Type, { type Static } from "typebox"
import { VM_CLOUDS } from "../../clouds/definitions.ts"
import { LIMITS } from "../apis/field-limits.ts"
import { RunSchema } from "../apis/job.ts"
import { BOOT_FAILURES, FINISH_CAUSES, FINISH_REASONS } from "../apis/launch.ts"
import { Int, MapOf, StringEnum, Text, Time } from "../apis/schema.ts"
import { USAGE_POINTS, UsagePointSchema, UsageSchema } from "../apis/usage.ts"

/**
 * Protocol of agent and gateway, over HTTPS connections that the agent opens. Changes only add to it, because a VM may
 * run the previous release's agent. Both sides ignore unknown fields.
 *
 * `POST {gateway}/agent/v1/launches/{launch}/register|report|logs|volumes|workdir|next`. Every request body is a compact JWS (RFC
 * 7515, EdDSA). Its key is the agent's own signing key, which the Launch is bound to when the agent registers. Its
 * `typ` header names the kind of message (`JWS_TYPES`), so that one can't be replayed as another. Each request has
 * `Authorization: Bearer <bootstrap token>`, which separates the VM's messages from a flood before their signature is checked.
 *
 * A VM on which no agent can run (no Docker engine, no GPU) reports that by `POST …/boot-failure`. Not the agent but
 * user data's own script sends it, with the bootstrap token and JSON. It binds no key, and is rejected once an agent
 * has registered.
 *
 * Answers: 200 with JSON, or a problem document (RFC 9457). If its type is in `REFUSALS`, it is final: the agent stops
 * the container and powers off. After any other answer (also a proxy's own 401 or 404) the agent retries later, after
 * `Retry-After` if it is present.
 */
export const PROTOCOL_VERSION = 1

/** Path of the gateway, below `gatewayUrl`. */
export const GATEWAY_PATH = "/agent/v1"

/** Media type of request bodies. */
export const JWS_CONTENT_TYPE = "application/jose"

/** Kinds of messages, with the `typ` header of each one's JWS. */
export const JWS_TYPES = {
  register: "berth-register",
  report: "berth-report",
  logs: "berth-logs",
  volumes: "berth-volumes",
  workdir: "berth-workdir",
  next: "berth-next",
  session: "berth-session",
} as const
export type MessageKind = keyof typeof JWS_TYPES

/** Kinds of messages of a host that its owner has joined (machines.ts), with the `typ` header of each one's JWS. */
export const HOST_JWS_TYPES = { join: "berth-join", beat: "berth-beat" } as const
export type HostMessageKind = keyof typeof HOST_JWS_TYPES

/** Algorithms for signatures and encryption. Both sides accept no others (RFC 7518, RFC 8037). */
export const ALGORITHMS = { signature: "EdDSA", keyManagement: "ECDH-ES+A256KW", encryption: "A256GCM" } as const

/** Prefix of the types of the gateway's problem documents. */
export const PROBLEM_TYPE_BASE = "https://berth.dev/problems/"

/** Problem types that are final, each with its HTTP status. */
export const REFUSALS = {
  /** The token or the signature is wrong. */
  "agent-not-authentic": 401,
  "unknown-launch": 404,
  /** The Launch is bound to another key pair. */
  "launch-key-conflict": 409,
  /** The Launch or its run has ended. */
  "launch-not-current": 410,
  /** The run can't be ordered. The gateway has recorded the reason as the Launch's finish (SecretMissing). */
  "nothing-to-run": 422,
  /** There is no such machine, or its owner removes it. */
  "unknown-machine": 404,
  /** The join token was used, or a later one was issued. */
  "join-token-used": 409,
  /** The join token has expired. */
  "join-token-expired": 410,
  /** The installation allows projects no machines of their own. */
  "machines-forbidden": 403,
} as const
export type Refusal = keyof typeof REFUSALS

/** Abilities of this version's agent, in its registration. */
export const ABILITIES = ["workdir", "readOnly", "sessions"] as const
export type Ability = (typeof ABILITIES)[number]

/** Seconds between two reports of a healthy VM, until the gateway says otherwise. */
export const HEARTBEAT_SECONDS = 15

/** Largest piece of log in one request, bytes before encoding. */
export const LOG_CHUNK_BYTES = 256 * 1024

/** Maximum number of times with one piece of log. */
export const LOG_MARKS = 1024

/**
 * Public key as a JWK (RFC 7517). It has the required members only, in the order of RFC 7638, so that equal keys are
 * equal text.
 */
const Jwk = Text(512, "JWK as JSON.")

export const RegisterRequestSchema = Type.Object({
  protocol: Int({ minimum: 1 }),
  launch: Text(253, "Name of the Launch."),
  version: Text(64, "Version of the agent."),
  runtime: Text(32, "docker or process."),
  /** Ed25519. The signature of the JWS proves that the agent has the private half. */
  signingKey: Jwk,
  /** X25519, for ECDH-ES+A256KW. */
  encryptionKey: Jwk,
  /**
   * Parts of an order that this agent can carry out. The gateway gives no order with a part that is missing here, because
   * an agent ignores what it does not know.
   */
  abilities: Type.Array(Text(32, "Ability."), { maxItems: 16 }),
})
export type RegisterRequest = Static<typeof RegisterRequestSchema>

/** Access to a volume's bucket: limited to the bucket, and short-lived if its provider supports it. */
export const BucketAccessSchema = Type.Object({
  /** Bucket and folder in it. */
  path: Type.String({ minLength: 1 }),
  /** Options of rclone's backend (https://rclone.org/overview/), with `type`. */
  remote: MapOf(Type.String()),
  /** Key of a backend of type s3. It is separate, because it can be renewed. */
  keys: Type.Optional(
    Type.Object({
      accessKeyId: Type.String(),
      secretAccessKey: Type.String(),
      sessionToken: Type.Optional(Type.String()),
    }),
  ),
  /** End of this access. The agent requests a new one before (`volumes`). */
  expiration: Type.Optional(Time("End of the access.")),
})
export type BucketAccess = Static<typeof BucketAccessSchema>

/** Access by the names of the run's volumes. */
export const BucketsSchema = MapOf(BucketAccessSchema)
export type Buckets = Static<typeof BucketsSchema>

/** Access to a run's image: for this image only, and short-lived if its registry supports it. */
export const RegistryAccessSchema = Type.Object({
  /** Host of the registry. */
  registry: Type.String(),
  username: Type.Optional(Type.String()),
  password: Type.Optional(Type.String()),
  /** Bearer token, instead of user and password. */
  token: Type.Optional(Type.String()),
  /** End of this access. An agent that needs another one registers again. */
  expiration: Type.Optional(Time("End of the access.")),
  /** Reason why there are no credentials. The agent shows it if the registry rejects the image. */
  why: Type.Optional(Type.String()),
})
export type RegistryAccess = Static<typeof RegistryAccessSchema>

/** Order for the VM, sent as a compact JWE (RFC 7516) to the agent's encryption key. */
export const RunOrderSchema = Type.Object({
  run: RunSchema,
  /** Values of the run's secretEnv. */
  secretEnv: MapOf(Type.String({ maxLength: LIMITS.envValue })),
  /** Number of the machine's GPUs that the container gets. */
  gpus: Int(),
  /** Access to the run's volumes. */
  buckets: Type.Optional(BucketsSchema),
  /** Credentials for the run's image. Absent: it is pulled anonymously. */
  registry: Type.Optional(RegistryAccessSchema),
  /** Present if the host also runs the containers of other jobs. Absent: the host is a VM of this Launch only. */
  sharedHost: Type.Optional(
    Type.Object({
      /** Memory that the container may use, MiB. */
      memoryMib: Int({ minimum: 1 }),
    }),
  ),
})
export type RunOrder = Static<typeof RunOrderSchema>

/** Time of the gateway's clock, in its answers. The agent times its output by it, because the VM's own clock may be wrong. */
function GatewayTime() {
  return Type.Optional(Int({ description: "Milliseconds since 1970." }))
}

export const RegisterResponseSchema = Type.Object({
  order: Type.String({ description: "RunOrder as a compact JWE." }),
  heartbeatSeconds: Int({ minimum: 1 }),
  time: GatewayTime(),
})
export type RegisterResponse = Static<typeof RegisterResponseSchema>

/** Range of exit codes in operating systems: 32 bits with a sign. */
function ExitCode() {
  return Type.Integer({ minimum: -(2 ** 31), maximum: 2 ** 31 - 1 })
}

export const ReportRequestSchema = Type.Object({
  launch: Text(253, "Name of the Launch."),
  /**
   * Number that grows with each report over the VM's whole life, reboots included. A report with a lower one is late
   * and ignored.
   */
  sequence: Int({ minimum: 1 }),
  /** 0 until the container first started, then 1, 2 … */
  attempt: Int(),
  retryCount: Int(),
  startTime: Type.Optional(Time("Time when the container first started.")),
  lastExitCode: Type.Optional(ExitCode()),
  preemptionNotice: Type.Optional(Time("Time of the cloud's preemption notice.")),
  /** Finish, which is sent with every report until the gateway has answered one with 200. Then the finish is stored. */
  finish: Type.Optional(
    Type.Object({
      reason: StringEnum(FINISH_REASONS),
      exitCode: Type.Optional(ExitCode()),
      message: Type.Optional(Text(LIMITS.message, "Message about the end.")),
      cause: Type.Optional(StringEnum(FINISH_CAUSES)),
      /** True if another VM may succeed. */
      transient: Type.Optional(Type.Boolean()),
      /** Last line of a failed container's output, without the values of its secretEnv. */
      lastLine: Type.Optional(Text(LIMITS.lastLine, "Last line of the output.")),
      usage: Type.Optional(UsageSchema),
      /** Seconds from now for which the VM is kept for sessions. */
      keepSeconds: Type.Optional(Int({ minimum: 1 })),
      time: Time("When."),
    }),
  ),
  /**
   * Use of the container, in order. At most once a minute, and with the finish: a message of its own would double the
   * messages. Without `usageAfter`, it is all points that the agent does not know as stored.
   */
  usage: Type.Optional(Type.Array(UsagePointSchema, { maxItems: USAGE_POINTS })),
  /** `usageHeld` of the last answer: `usage` has only the points after it. Never with a finish. */
  usageAfter: Type.Optional(Int()),
})
export type ReportRequest = Static<typeof ReportRequestSchema>

/** `stop`: the stop signal, 10 seconds, SIGKILL, a last report, power off. */
export const ReportResponseSchema = Type.Object({
  desired: StringEnum(["run", "stop"]),
  /** Seconds until the next report. */
  heartbeatSeconds: Int({ minimum: 1 }),
  /** Beginning of the last point of `usage` that is stored, milliseconds since 1970. The agent no longer sends it and older ones. */
  usageStored: Type.Optional(Int()),
  /**
   * Beginning of a point, milliseconds since 1970. This replica of the gateway holds all points up to it that are not
   * stored. Absent after a report with `usage`: it lacks some before, or holds none. The next report has all points.
   */
  usageHeld: Type.Optional(Int()),
  /** Ids of the Launch's open sessions (sessions.ts). */
  sessions: Type.Optional(Type.Array(Text(64, "Id."), { maxItems: 16 })),
})
export type ReportResponse = Static<typeof ReportResponseSchema>

export const LogsRequestSchema = Type.Object({
  launch: Text(253, "Name of the Launch."),
  /** Start of this piece in the Launch's log, bytes. A piece that is sent twice is stored once. */
  offset: Int(),
  /** Base64. */
  data: Type.String({ maxLength: Math.ceil((LOG_CHUNK_BYTES * 4) / 3) + 4 }),
  /**
   * Times at which the agent has read the bytes from `at` of this piece on, by the gateway's clock. They are in order.
   * Absent: the gateway takes the time of the message.
   */
  times: Type.Optional(
    Type.Array(Type.Object({ at: Int(), time: Int({ description: "Milliseconds since 1970." }) }), {
      maxItems: LOG_MARKS,
    }),
  ),
})
export type LogsRequest = Static<typeof LogsRequestSchema>

/** `length`: size of the Launch's log; the next piece begins there. */
export const LogsResponseSchema = Type.Object({
  length: Int(),
  time: GatewayTime(),
})
export type LogsResponse = Static<typeof LogsResponseSchema>

/** Largest body of a boot failure, bytes. */
export const BOOT_FAILURE_BYTES = 4096

/** Reason why the VM can run no container. The VM powers off after any answer of the gateway. */
export const BootFailureRequestSchema = Type.Object({
  reason: StringEnum(BOOT_FAILURES),
  message: Text(LIMITS.message, "Finding on the VM."),
})
export type BootFailureRequest = Static<typeof BootFailureRequestSchema>

/** First word of the line with which a VM says on its serial console, as JSON, why it can run no container. */
export const CONSOLE_MARK = "berth-boot"
/** Text of that line once the VM has found a way to the gateway: what it said before no longer holds. */
export const CONSOLE_OK = "ok"

/** Request to renew the access to the run's buckets. */
export const VolumesRequestSchema = Type.Object({ launch: Text(253, "Name of the Launch.") })
export type VolumesRequest = Static<typeof VolumesRequestSchema>

export const VolumesResponseSchema = Type.Object({ buckets: Type.String({ description: "Buckets as a compact JWE." }) })
export type VolumesResponse = Static<typeof VolumesResponseSchema>

/** Request for the archive of the run's working directory. The answer is its bytes, from `start` on. */
export const WorkdirRequestSchema = Type.Object({
  launch: Text(253, "Name of the Launch."),
  /** Number of bytes that the agent has already. */
  start: Int(),
})
export type WorkdirRequest = Static<typeof WorkdirRequestSchema>

/** Media type of an archive. */
export const ARCHIVE_CONTENT_TYPE = "application/gzip"

/** Longest time that the gateway waits for a job before it answers an idle VM, seconds. */
export const NEXT_WAIT_SECONDS = 25

/**
 * Request of a VM whose finish is stored for another job. The first one says that nothing of its job is left on it. The
 * VM repeats it until it gets a job, or leaves.
 */
export const NextRequestSchema = Type.Object({
  launch: Text(253, "Name of the Launch."),
  /** Reason why no other job may have this VM, which powers off. */
  unfit: Type.Optional(Text(LIMITS.message, "Reason.")),
  /** True if the VM powers off unless it gets a job now. */
  isLeaving: Type.Optional(Type.Boolean()),
})
export type NextRequest = Static<typeof NextRequestSchema>

export const NextResponseSchema = Type.Object({
  /** BootConfig of the Launch that has the VM now, as a compact JWE. The agent registers for it with new keys. */
  next: Type.Optional(Type.String()),
  /** True: no job yet, ask again. False: power off, unless there is a `next`. */
  isAwaited: Type.Boolean(),
})
export type NextResponse = Static<typeof NextResponseSchema>

/** User data of a VM, as JSON. It contains no cloud credentials and no user's secret. */
export const BootConfigSchema = Type.Object({
  launch: Text(253, "Name of the Launch."),
  gatewayUrl: Text(2048, "URL to report to."),
  gatewayCa: Type.Optional(Text(65_536, "PEM of authorities to trust in addition to the public ones.")),
  bootstrapToken: Text(256, "HMAC of the Launch's name: admits one key pair."),
  lifetimeSeconds: Int({ minimum: 1 }),
  /** Seconds after boot at which the container ends, because the job may not cost more. */
  budgetSeconds: Type.Optional(Int({ minimum: 1 })),
  /** Image with rclone for the job's volumes. */
  volumesImage: Type.Optional(Text(512, "Image reference.")),
  /** Cloud whose metadata service announces preemption; absent if the VM is never preempted. */
  spotCloud: Type.Optional(StringEnum(VM_CLOUDS)),
})
export type BootConfig = Static<typeof BootConfigSchema>
