import Type, { type Static } from "typebox"
import { AGE_COLUMN, defineKind } from "./kind.ts"
import { GROUP, type KubeObject, type Stored } from "./meta.ts"
import { ALLOWED, ConditionList, Int, StringEnum, Text } from "./schema.ts"

/** The contract's organization roles. */
export const ORGANIZATION_ROLES = ["owner", "admin", "member"] as const
export type OrganizationRole = (typeof ORGANIZATION_ROLES)[number]

/** A person: the OIDC issuer, `#`, and the subject that it knows the person by; Kubernetes' user of the same name. */
export const UserIdSchema = Type.String({
  maxLength: 512,
  pattern: "^https?://[^#\\s]+#\\S(.*\\S)?$",
  description: "Issuer and subject of the person's OIDC identity: <issuer>#<subject>.",
  [ALLOWED]: "an issuer's URL, # and a subject, such as https://issuer.example.com#248289761001",
})

/** A group of people as their issuer knows it; Kubernetes' group of the same name, with the issuer as its prefix. */
export const GroupIdSchema = Type.String({
  maxLength: 512,
  pattern: "^https?://[^#\\s]+#\\S(.*\\S)?$",
  description: "Issuer and name of the group: <issuer>#<group>.",
  [ALLOWED]: "an issuer's URL, # and a group of its tokens, such as https://issuer.example.com#engineers",
})

export const OrganizationSpecSchema = Type.Object({
  displayName: Type.String({ minLength: 1, maxLength: 64, description: "Name for people; need not be unique." }),
  category: Type.Optional(Text(32, "What kind of organization it is, a free word.", { default: "personal" })),
  members: Type.Optional(
    Type.Array(
      Type.Object({
        userId: UserIdSchema,
        email: Type.Optional(Text(320, "Address, for people.")),
        role: StringEnum(ORGANIZATION_ROLES, { description: "owner and admin are admins of its projects." }),
      }),
      {
        description: "Who belongs to it.",
        maxItems: 1000,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["userId"],
      },
    ),
  ),
  groups: Type.Optional(
    Type.Array(
      Type.Object({
        group: GroupIdSchema,
        role: StringEnum(ORGANIZATION_ROLES, { description: "Of everybody in the group." }),
      }),
      {
        description: "Groups whose people belong to it, as the issuer's tokens say; the higher role counts.",
        maxItems: 100,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["group"],
      },
    ),
  ),
})
export type OrganizationSpec = Static<typeof OrganizationSpecSchema>

export const OrganizationStatusSchema = Type.Object({
  observedGeneration: Type.Optional(Int()),
  conditions: Type.Optional(ConditionList),
})

export type OrganizationStatus = Static<typeof OrganizationStatusSchema>

export type Organization = KubeObject<OrganizationSpec, OrganizationStatus>
export type StoredOrganization = Stored<Organization>

/** Keeps an Organization as long as it has Projects. */
export const ORGANIZATION_FINALIZER = `${GROUP}/projects`

export const ORGANIZATION = defineKind({
  kind: "Organization",
  plural: "organizations",
  singular: "organization",
  shortNames: ["borg"],
  namespaced: false,
  description: "People who own projects together.",
  spec: OrganizationSpecSchema,
  status: OrganizationStatusSchema,
  printerColumns: [
    { name: "Name", type: "string", jsonPath: ".spec.displayName" },
    { name: "Category", type: "string", jsonPath: ".spec.category" },
    { name: "Ready", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].status" },
    AGE_COLUMN,
  ],
})
