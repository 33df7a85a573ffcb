import Type, { type Static } from "typebox"
import { AGE_COLUMN, defineKind, nameRules } from "./kind.ts"
import { LIMITS } from "./limits.ts"
import type { KubeObject, Stored } from "./meta.ts"
import { ConditionList, Int, SENSITIVE, SecretName, StringEnum, Text, Time } from "./schema.ts"

/** Kinds of external accounts. aws, gcp and azure run VMs; the others hold buckets or images. */
export const CONNECTION_TYPES = ["aws", "gcp", "azure", "cloudflare", "dockerhub", "github"] as const
export type ConnectionType = (typeof CONNECTION_TYPES)[number]

/** Conditions of a Connection. Tools that support kstatus read the first three. */
export const ConnectionCondition = {
  Ready: "Ready",
  Reconciling: "Reconciling",
  Stalled: "Stalled",
  /** False: the credentials are not allowed to create VMs. Absent if the provider cannot be asked. */
  LaunchPermitted: "LaunchPermitted",
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
  /** The credentials have every permission that creating VMs needs. */
  PermissionsGranted: "PermissionsGranted",
  PermissionsMissing: "PermissionsMissing",
  /** The provider does not report the permissions of the credentials. */
  PermissionsUnknown: "PermissionsUnknown",
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
  },
  {
    description: "Type of account and its credentials. Set exactly one of credentialsSecretRef and sealedCredentials.",
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
    ],
  },
)
export type ConnectionSpec = Static<typeof ConnectionSpecSchema>

export const ConnectionStatusSchema = Type.Object({
  observedGeneration: Type.Optional(Int()),
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
})
export type ConnectionStatus = Static<typeof ConnectionStatusSchema>

export type Connection = KubeObject<ConnectionSpec, ConnectionStatus>
export type StoredConnection = Stored<Connection>

export const CONNECTION = defineKind({
  kind: "Connection",
  plural: "connections",
  singular: "connection",
  shortNames: ["bconn"],
  namespaced: true,
  description: "Credentials of an external account. A project's jobs run VMs in it, or read buckets or images from it.",
  spec: ConnectionSpecSchema,
  status: ConnectionStatusSchema,
  rules: nameRules(LIMITS.connectionName),
  printerColumns: [
    { name: "Type", type: "string", jsonPath: ".spec.type" },
    { name: "Ready", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].status" },
    { name: "Account", type: "string", jsonPath: ".status.account" },
    { name: "Verified", type: "date", jsonPath: ".status.lastVerifiedTime", priority: 1 },
    AGE_COLUMN,
  ],
  selectableFields: [".spec.type"],
})
