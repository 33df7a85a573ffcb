import Type, { type Static } from "typebox"
import { AGE_COLUMN, defineKind, nameRules } from "./kind.ts"
import { LIMITS } from "./limits.ts"
import type { KubeObject, Stored } from "./meta.ts"
import { ConditionList, Int, SENSITIVE, SecretName, StringEnum, Text, Time } from "./schema.ts"

/** Kinds of external accounts. aws, gcp and azure can run VMs, the others hold buckets or images. */
export const CONNECTION_TYPES = ["aws", "gcp", "azure", "cloudflare", "dockerhub", "github"] as const
export type ConnectionType = (typeof CONNECTION_TYPES)[number]

/** Conditions of a Connection; the first three are for the tools that read kstatus. */
export const ConnectionCondition = {
  Ready: "Ready",
  Reconciling: "Reconciling",
  Stalled: "Stalled",
  /** False: VMs can't be started with the credentials, whatever else they open. Absent where the provider can't be asked. */
  LaunchPermitted: "LaunchPermitted",
} as const

/** Reasons of its conditions and events. */
export const ConnectionReason = {
  /** The provider took the credentials. */
  Verified: "Verified",
  /** Being asked for the first time. */
  Verifying: "Verifying",
  SecretNotFound: "SecretNotFound",
  WrongSecretType: "WrongSecretType",
  /** A field is missing, unknown or malformed. */
  InvalidCredentials: "InvalidCredentials",
  /** The provider doesn't take them. */
  CredentialsRefused: "CredentialsRefused",
  ProviderUnreachable: "ProviderUnreachable",
  /** This version can't ask such a provider. */
  Unverified: "Unverified",
  /** Sealed under a key that is not in the keyring. */
  UnknownKey: "UnknownKey",
  /** Changed, or sealed for another project or name. */
  Tampered: "Tampered",
  /** The namespace belongs to no Project. */
  NoProject: "NoProject",
  /** The credentials may do all that starting VMs needs. */
  PermissionsGranted: "PermissionsGranted",
  PermissionsMissing: "PermissionsMissing",
  /** The provider does not say what the credentials may do. */
  PermissionsUnknown: "PermissionsUnknown",
} as const
export type ConnectionReason = (typeof ConnectionReason)[keyof typeof ConnectionReason]

export const ConnectionSpecSchema = Type.Object(
  {
    type: StringEnum(CONNECTION_TYPES, { description: "What kind of account it is." }),
    credentialsSecretRef: Type.Optional(
      Type.Object({ name: SecretName() }, { description: "Secret of type berth.dev/connection in this namespace." }),
    ),
    sealedCredentials: Type.Optional(
      Text(LIMITS.sealedCredentials, "Credentials as Berth's REST API sealed them.", { [SENSITIVE]: true }),
    ),
  },
  {
    description: "Either credentialsSecretRef or sealedCredentials.",
    "x-kubernetes-validations": [
      {
        rule: "has(self.credentialsSecretRef) != has(self.sealedCredentials)",
        message: "exactly one of credentialsSecretRef and sealedCredentials is needed",
      },
      {
        rule: "self.type == oldSelf.type",
        message: "type is immutable: delete the connection and create it anew",
        fieldPath: ".type",
      },
    ],
  },
)
export type ConnectionSpec = Static<typeof ConnectionSpecSchema>

export const ConnectionStatusSchema = Type.Object({
  observedGeneration: Type.Optional(Int()),
  conditions: Type.Optional(ConditionList),
  account: Type.Optional(Text(256, "Whose account the credentials open.")),
  lastVerifiedTime: Type.Optional(Time("When the credentials were last seen to work.")),
  verifiedCredentials: Type.Optional(Text(256, "Tells which credentials were verified, and nothing of what they are.")),
  regions: Type.Optional(
    Type.Array(Text(LIMITS.region, "A region."), {
      description: "Where VMs were made by this connection: forgotten ones are looked for there.",
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
  description: "Credentials for an external account that a project's jobs run in or read from.",
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
