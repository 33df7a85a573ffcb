import Type, { type Static } from "typebox"
import { DEFINITIONS } from "../../clouds/definitions.ts"
import { LIMITS } from "./field-limits.ts"
import { AGE_COLUMN, defineKind, nameRules } from "./kind.ts"
import { ANNOTATIONS, type KubeObject, type Stored } from "./meta.ts"
import { ConditionList, ObservedGeneration, SENSITIVE, SecretName, StringEnum, Text, Time } from "./schema.ts"
import { vmSettingFields, vmSettingRules } from "./vm-settings.ts"

/** Kinds of external accounts. Some have VMs; the others hold buckets or images. */
export type ConnectionType = keyof typeof DEFINITIONS
export const CONNECTION_TYPES = Object.keys(DEFINITIONS) as readonly ConnectionType[]

/** Conditions of a Connection. Tools that support kstatus read the first three. */
export const ConnectionCondition = {
  Ready: "Ready",
  Reconciling: "Reconciling",
  Stalled: "Stalled",
  /** The verdict on `vms` in `status.capabilities`. False: no VM is started. Absent if it was never checked. */
  LaunchPermitted: "LaunchPermitted",
  /** True: the account rejected launches, so Berth launches no VM with it for some time, or fewer. */
  CoolingDown: "CoolingDown",
  /** True: Berth reads the current prices of the connection's cloud, by this connection or another one. */
  Prices: "Prices",
} as const

/** Reasons of its conditions and events. */
export const ConnectionReason = {
  /** The provider accepted the credentials. */
  Verified: "Verified",
  /** The first verification is in progress. */
  Verifying: "Verifying",
  SecretNotFound: "SecretNotFound",
  WrongSecretType: "WrongSecretType",
  /** A field is missing, unknown or malformed. */
  InvalidCredentials: "InvalidCredentials",
  /** The provider rejected the credentials. */
  CredentialsRefused: "CredentialsRefused",
  ProviderUnreachable: "ProviderUnreachable",
  /** This version of Berth cannot verify credentials of this provider. */
  Unverified: "Unverified",
  /** Sealed under a key that is not in the keyring. */
  UnknownKey: "UnknownKey",
  /** Changed, or sealed for another project or name. */
  Tampered: "Tampered",
  /** The namespace belongs to no Project. */
  NoProject: "NoProject",
  /** The project has reached its maximum number of connections. */
  ProjectLimit: "ProjectLimit",
  /** The credentials have every permission that creating VMs needs. */
  PermissionsGranted: "PermissionsGranted",
  PermissionsMissing: "PermissionsMissing",
  /** The provider does not report the permissions of the credentials. */
  PermissionsUnknown: "PermissionsUnknown",
  /** The account rejected launches. */
  LaunchesRejected: "LaunchesRejected",
  /** The cloud has answered with its prices. */
  Read: "Read",
  /** The cloud refused to show its prices. */
  Forbidden: "Forbidden",
  /** The cloud gave no answer about its prices. */
  Unreachable: "Unreachable",
  /** Prices were not read yet. */
  NotRead: "NotRead",
  /** The cooldown has ended. */
  NoCooldown: "NoCooldown",
  /** The account has no network for VMs in any region that was checked. */
  NetworkMissing: "NetworkMissing",
  /** An API or a resource provider of the account is not enabled. */
  ServiceDisabled: "ServiceDisabled",
  /** The provider has suspended the account, or the account has no billing. */
  AccountDisabled: "AccountDisabled",
  /** The account has a quota of zero. */
  QuotaMissing: "QuotaMissing",
  /** The provider did not answer a check. */
  Unanswered: "Unanswered",
} as const
export type ConnectionReason = (typeof ConnectionReason)[keyof typeof ConnectionReason]

export const ConnectionSpecSchema = Type.Object(
  {
    type: StringEnum(CONNECTION_TYPES, { description: "Provider of the account." }),
    credentialsSecretRef: Type.Optional(
      Type.Object(
        { name: SecretName() },
        { description: "Secret of type berth.dev/connection in this namespace with the credentials." },
      ),
    ),
    sealedCredentials: Type.Optional(
      Text(LIMITS.sealedCredentials, "Credentials, encrypted by Berth's REST API.", { [SENSITIVE]: true }),
    ),
    ...vmSettingFields,
  },
  {
    description:
      "Type of account, its credentials, and settings of its VMs. Set exactly one of credentialsSecretRef and sealedCredentials.",
    "x-kubernetes-validations": [
      {
        rule: "has(self.credentialsSecretRef) != has(self.sealedCredentials)",
        message: "set exactly one of credentialsSecretRef and sealedCredentials",
      },
      {
        rule: "self.type == oldSelf.type",
        message: "type is immutable: delete the connection and create it again",
        fieldPath: ".type",
      },
      ...vmSettingRules,
    ],
  },
)
export type ConnectionSpec = Static<typeof ConnectionSpecSchema>

/** Uses of an account that Berth checks with each verification. */
export const CAPABILITIES = ["vms", "buckets", "repositories", "prices"] as const
export type CapabilityName = (typeof CAPABILITIES)[number]

/** Maximum length of the message of a capability, characters. */
export const CAPABILITY_MESSAGE = 1024

/** Longest text of a request for a check, characters. The rest of a longer one does not count. */
export const CHECK_REQUEST = 128

/** Permissions that a capability names; an account that lacks more has them in its message. */
export const MISSING_PERMISSIONS = 64

const capability = (use: string) =>
  Type.Optional(
    Type.Object(
      {
        status: StringEnum(["True", "False", "Unknown"]),
        reason: Text(128, "Cause of the status, in CamelCase."),
        message: Text(
          CAPABILITY_MESSAGE,
          "Result of the check. If something is missing, also the action that fixes it.",
        ),
        missing: Type.Optional(
          Type.Array(Text(256, "Name of a permission, as the provider has it."), {
            maxItems: MISSING_PERMISSIONS,
            description: "Permissions that are missing, such as ec2:RunInstances.",
          }),
        ),
      },
      { description: use },
    ),
  )

/** Verdicts of the last verification. A provider that has no such use has no entry for it. */
export const CapabilitiesSchema = Type.Object(
  {
    vms: capability("Ability to start VMs. False: Berth starts none with this connection. Unknown: Berth tries."),
    buckets: capability("Ability to list buckets. Unknown: jobs may still use a bucket that they name."),
    repositories: capability("Ability to list image repositories. Unknown: jobs may still pull an image."),
    prices: capability("Ability to read current prices. False: Berth uses another connection or its shipped prices."),
  },
  { description: "Uses of the account that the credentials allow, checked without creating anything." },
)
export type StoredCapabilities = Static<typeof CapabilitiesSchema>

export const CloudIdentitySchema = Type.Object(
  {
    issuer: Type.Optional(Text(2048, "Issuer of the identity tokens.")),
    subject: Text(127, "Subject of the identity tokens: the project, the connection and an id."),
    audience: Type.Optional(Text(512, "Audience of the identity tokens.")),
    externalId: Text(64, "External id, for a key that assumes a role of AWS."),
  },
  { description: "Identity that the cloud must trust. Only connections without a secret, or with a role, have it." },
)
export type CloudIdentity = Static<typeof CloudIdentitySchema>

export const ConnectionStatusSchema = Type.Object({
  observedGeneration: ObservedGeneration,
  conditions: Type.Optional(ConditionList),
  account: Type.Optional(Text(256, "Account, project or subscription of the credentials, as the provider reports it.")),
  lastVerifiedTime: Type.Optional(Time("Time of the last successful verification.")),
  verifiedCredentials: Type.Optional(
    Text(256, "Fingerprint of the verified credentials. It contains no part of them."),
  ),
  regions: Type.Optional(
    Type.Array(Text(LIMITS.region, "Name of a region."), {
      description: "Regions in which this connection created VMs. Berth searches them for orphaned VMs.",
      maxItems: LIMITS.usedRegions,
    }),
  ),
  capabilities: Type.Optional(CapabilitiesSchema),
  identity: Type.Optional(CloudIdentitySchema),
  lastCheck: Type.Optional(
    Type.Object(
      {
        request: Text(CHECK_REQUEST, `Value of the annotation ${ANNOTATIONS.checkRequested} that asked for it.`),
        time: Time("Time of the check."),
        reason: Text(128, "Result of the check, as a reason of the condition Ready."),
        message: Text(LIMITS.message, "Result of the check for people."),
      },
      {
        description: "Last check that the annotation has asked for. The other fields of the status have its findings.",
      },
    ),
  ),
})
export type ConnectionStatus = Static<typeof ConnectionStatusSchema>

export type Connection = KubeObject<ConnectionSpec, ConnectionStatus>
export type StoredConnection = Stored<Connection>

/** Returns the request for a check that the operator has not answered; undefined if there is none. */
export function openCheck({ metadata, status }: Pick<StoredConnection, "metadata" | "status">): string | undefined {
  const request = metadata.annotations?.[ANNOTATIONS.checkRequested]?.slice(0, CHECK_REQUEST)
  return request === undefined || request === "" || request === status?.lastCheck?.request ? undefined : request
}

export const CONNECTION = defineKind({
  kind: "Connection",
  plural: "connections",
  singular: "connection",
  shortNames: ["bconn"],
  namespaced: true,
  description: "Credentials of an external account. A project's jobs run VMs in it, or read buckets or images from it.",
  spec: ConnectionSpecSchema,
  status: ConnectionStatusSchema,
  conditions: Object.values(ConnectionCondition),
  rules: nameRules(LIMITS.connectionName),
  printerColumns: [
    { name: "Type", type: "string", jsonPath: ".spec.type" },
    { name: "Ready", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].status" },
    { name: "Reason", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].reason" },
    { name: "VMs", type: "string", jsonPath: ".status.capabilities.vms.status" },
    { name: "Account", type: "string", jsonPath: ".status.account" },
    { name: "Verified", type: "date", jsonPath: ".status.lastVerifiedTime", priority: 1 },
    AGE_COLUMN,
  ],
  selectableFields: [".spec.type"],
})
