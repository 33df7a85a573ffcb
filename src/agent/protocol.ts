import Type, { type Static } from "typebox"
import { RunSchema } from "../apis/job.ts"
import { BOOT_FAILURES, FINISH_REASONS } from "../apis/launch.ts"
import { LIMITS } from "../apis/limits.ts"
import { Int, StringEnum, Text, Time } from "../apis/schema.ts"

/**
 * What agent and gateway say to each other, over HTTPS that the agent opens. Only ever added to: a VM may run
 * the previous release's agent. Unknown fields are ignored by both sides.
 *
 * `POST {gateway}/agent/v1/launches/{launch}/register|report|logs|volumes`. Every request body is a compact JWS (RFC 7515,
 * EdDSA) made with the agent's own signing key, which the Launch is bound to when it registers; its `typ` header
 * names the kind of message (`JWS_TYPES`), so that one can't be replayed as another. Each request carries
 * `Authorization: Bearer <bootstrap token>`. `register` requires it. With the others it lets the gateway tell the VM's
 * messages from a flood before it checks a signature; agents of former versions leave it out there.
 *
 * A VM on which no agent can run (no Docker engine, no GPU) says so by `POST …/boot-failure`, which no agent sends: user
 * data's own script does, with the bootstrap token and JSON. It binds no key, and is refused once an agent has registered.
 *
 * Answers: 200 with JSON, or a problem document (RFC 9457). One whose type is in `REFUSALS` is final: the agent
 * stops the container and powers off. Everything else (a proxy's own 401 or 404 too) means: try again later, after
 * `Retry-After` where it is given.
 */
export const PROTOCOL_VERSION = 1

/** Where the gateway is mounted, below `gatewayUrl`. */
export const GATEWAY_PATH = "/agent/v1"

/** Media type of request bodies. */
export const JWS_CONTENT_TYPE = "application/jose"

/** The messages, and the `typ` header of each one's JWS. */
export const JWS_TYPES = {
  register: "berth-register",
  report: "berth-report",
  logs: "berth-logs",
  volumes: "berth-volumes",
} as const
export type MessageKind = keyof typeof JWS_TYPES

/** How both sides sign and encrypt, and nothing else is accepted (RFC 7518, RFC 8037). */
export const ALGORITHMS = { signature: "EdDSA", keyManagement: "ECDH-ES+A256KW", encryption: "A256GCM" } as const

/** What the types of the gateway's problem documents begin with. */
export const PROBLEM_TYPE_BASE = "https://berth.dev/problems/"

/** Problem types that are final, each with its HTTP status. */
export const REFUSALS = {
  /** The token or the signature is wrong. */
  "agent-not-authentic": 401,
  "unknown-launch": 404,
  /** Another key pair holds the Launch. */
  "launch-key-conflict": 409,
  /** The Launch has ended, or its run has. */
  "launch-not-current": 410,
  /** The run can't be ordered; the gateway has already recorded why as the Launch's finish (SecretMissing). */
  "nothing-to-run": 422,
} as const
export type Refusal = keyof typeof REFUSALS

/** Seconds between two reports of a healthy VM. */
export const HEARTBEAT_SECONDS = 15

/** Largest piece of log in one request, bytes before encoding. */
export const LOG_CHUNK_BYTES = 64 * 1024

/** A public key as a JWK (RFC 7517): its required members only, in the order of RFC 7638, so that equal keys are equal text. */
const Jwk = Text(512, "JWK as JSON.")

export const RegisterRequestSchema = Type.Object({
  protocol: Int({ minimum: 1 }),
  launch: Text(253, "Name of the Launch."),
  version: Text(64, "Version of the agent."),
  runtime: Text(32, "docker or process."),
  /** Ed25519; the JWS itself proves that the agent holds its private half. */
  signingKey: Jwk,
  /** X25519, for ECDH-ES+A256KW. */
  encryptionKey: Jwk,
})
export type RegisterRequest = Static<typeof RegisterRequestSchema>

/** What a volume's bucket is opened with: scoped to it and short-lived where its provider can. */
export const BucketAccessSchema = Type.Object({
  /** The bucket and the folder in it. */
  path: Type.String({ minLength: 1 }),
  /** Options of rclone's backend (https://rclone.org/overview/), `type` among them. */
  remote: Type.Record(Type.String(), Type.String()),
  /** The key of a backend of type s3: apart, since it can be renewed. */
  keys: Type.Optional(
    Type.Object({
      accessKeyId: Type.String(),
      secretAccessKey: Type.String(),
      sessionToken: Type.Optional(Type.String()),
    }),
  ),
  /** When this ends; it is asked for anew before (`volumes`). */
  expiration: Type.Optional(Time("When the access ends.")),
})
export type BucketAccess = Static<typeof BucketAccessSchema>

/** By the names of the run's volumes. */
export const BucketsSchema = Type.Record(Type.String(), BucketAccessSchema)
export type Buckets = Static<typeof BucketsSchema>

/** What a run's image is pulled with: for this image only and short-lived where its registry can. */
export const RegistryAccessSchema = Type.Object({
  /** The registry's host. */
  registry: Type.String(),
  username: Type.Optional(Type.String()),
  password: Type.Optional(Type.String()),
  /** A bearer's, in place of user and password. */
  token: Type.Optional(Type.String()),
  /** When this ends; who needs another one registers again. */
  expiration: Type.Optional(Time("When the access ends.")),
  /** Why there is nothing to sign in with: told where the registry then refuses the image. */
  why: Type.Optional(Type.String()),
})
export type RegistryAccess = Static<typeof RegistryAccessSchema>

/** What the VM is to run; sent as a compact JWE (RFC 7516) to the agent's encryption key. */
export const RunOrderSchema = Type.Object({
  run: RunSchema,
  /** Values of the run's secretEnv. */
  secretEnv: Type.Record(Type.String(), Type.String({ maxLength: LIMITS.envValue })),
  /** GPUs of the machine that the container is to see. */
  gpus: Int(),
  /** What the run's volumes are opened with. */
  buckets: Type.Optional(BucketsSchema),
  /** What the run's image is pulled with; without it as anybody pulls it. */
  registry: Type.Optional(RegistryAccessSchema),
})
export type RunOrder = Static<typeof RunOrderSchema>

export const RegisterResponseSchema = Type.Object({
  order: Type.String({ description: "RunOrder as a compact JWE." }),
  heartbeatSeconds: Int({ minimum: 1 }),
})
export type RegisterResponse = Static<typeof RegisterResponseSchema>

/** Range of exit codes in operating systems: 32 bits with a sign. */
function ExitCode() {
  return Type.Integer({ minimum: -(2 ** 31), maximum: 2 ** 31 - 1 })
}

export const ReportRequestSchema = Type.Object({
  launch: Text(253, "Name of the Launch."),
  /** Grows with each report over the VM's whole life, reboots included; a lower one is late and changes nothing. */
  sequence: Int({ minimum: 1 }),
  /** 0 until the container first started, then 1, 2 … */
  attempt: Int(),
  retryCount: Int(),
  startTime: Type.Optional(Time("When the container first started.")),
  lastExitCode: Type.Optional(ExitCode()),
  preemptionNotice: Type.Optional(Time("When the cloud gave notice.")),
  /** Sent again with every later report until the gateway has answered one with 200: then it is stored for good. */
  finish: Type.Optional(
    Type.Object({
      reason: StringEnum(FINISH_REASONS),
      exitCode: Type.Optional(ExitCode()),
      message: Type.Optional(Text(LIMITS.message, "What there is to say about the end.")),
      time: Time("When."),
    }),
  ),
})
export type ReportRequest = Static<typeof ReportRequestSchema>

/** `stop`: SIGTERM, 10 seconds, SIGKILL, a last report, power off. */
export const ReportResponseSchema = Type.Object({ desired: StringEnum(["run", "stop"]) })
export type ReportResponse = Static<typeof ReportResponseSchema>

export const LogsRequestSchema = Type.Object({
  launch: Text(253, "Name of the Launch."),
  /** Where in the Launch's log this piece begins, bytes: a piece that is sent twice is stored once. */
  offset: Int(),
  /** Base64. */
  data: Type.String({ maxLength: Math.ceil((LOG_CHUNK_BYTES * 4) / 3) + 4 }),
})
export type LogsRequest = Static<typeof LogsRequestSchema>

/** `length`: how much of the Launch's log is stored now, bytes; the next piece begins there. `full`: no more is kept. */
export const LogsResponseSchema = Type.Object({ length: Int(), full: Type.Boolean() })
export type LogsResponse = Static<typeof LogsResponseSchema>

/** Largest body of a boot failure, bytes. */
export const BOOT_FAILURE_BYTES = 4096

/** Reason why the VM can run no container. The VM powers off whatever the gateway answers. */
export const BootFailureRequestSchema = Type.Object({
  reason: StringEnum(BOOT_FAILURES),
  message: Text(LIMITS.message, "What was found."),
})
export type BootFailureRequest = Static<typeof BootFailureRequestSchema>

/** Asks for the access to the run's buckets anew. */
export const VolumesRequestSchema = Type.Object({ launch: Text(253, "Name of the Launch.") })
export type VolumesRequest = Static<typeof VolumesRequestSchema>

export const VolumesResponseSchema = Type.Object({ buckets: Type.String({ description: "Buckets as a compact JWE." }) })
export type VolumesResponse = Static<typeof VolumesResponseSchema>

/** Clouds whose metadata service tells a spot VM that it is taken back. */
export const SPOT_CLOUDS = ["aws", "gcp", "azure"] as const
export type SpotCloud = (typeof SPOT_CLOUDS)[number]

/** What a VM starts with, as JSON in its user data. It holds no cloud credentials and no user's secret. */
export const BootConfigSchema = Type.Object({
  launch: Text(253, "Name of the Launch."),
  gatewayUrl: Text(2048, "Where to report."),
  gatewayCa: Type.Optional(Text(65_536, "PEM of the gateway's CA, where it is not a public one.")),
  bootstrapToken: Text(256, "HMAC of the Launch's name: admits one key pair."),
  lifetimeSeconds: Int({ minimum: 1 }),
  /** Berth's own image, which has rclone in it: volumes need it. */
  image: Type.Optional(Text(512, "Image reference.")),
  /** Whose metadata service tells when the VM is taken back; absent where it never is. */
  spotCloud: Type.Optional(StringEnum(SPOT_CLOUDS)),
})
export type BootConfig = Static<typeof BootConfigSchema>
