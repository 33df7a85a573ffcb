import Type, { type Static } from "typebox"
import { SpendCaps, SpendingStatus, WITHIN_CAPS } from "./caps.ts"
import { AGE_COLUMN, defineKind } from "./kind.ts"
import { GROUP, type KubeObject, type Stored } from "./meta.ts"
import { ALLOWED, ConditionList, ObservedGeneration, PATTERN_AS_RULE, StringEnum, Text } from "./schema.ts"

/** Organization roles of the contract. */
export const ORGANIZATION_ROLES = ["owner", "admin", "member"] as const
export type OrganizationRole = (typeof ORGANIZATION_ROLES)[number]

/** Display name of an organization or project. */
export function DisplayName() {
  return Type.String({
    minLength: 1,
    maxLength: 64,
    pattern: "^ *[^\\x00-\\x20\\x7f][^\\x00-\\x1f\\x7f]*$",
    description: "Display name; need not be unique.",
    [ALLOWED]: "a name with a visible character, on one line and without control characters",
    [PATTERN_AS_RULE]: true,
  })
}

/**
 * Issuer's URL, `#`, and a name that the issuer gave. Its classes of characters are listed: `.` and `\s` mean other
 * characters to the API server (RE2) than to JavaScript.
 */
const OF_ISSUER = "^https?://[^#\\x00-\\x20\\x7f]+#[^\\x00-\\x20\\x7f]([^\\x00-\\x1f\\x7f]*[^\\x00-\\x20\\x7f])?$"

/** User: the OIDC issuer, `#` and the issuer's subject. The Kubernetes user has the same name. */
export const UserIdSchema = Type.String({
  maxLength: 512,
  pattern: OF_ISSUER,
  description: "Issuer and subject of the user's OIDC identity: <issuer>#<subject>.",
  [ALLOWED]: "an issuer's URL, # and a subject, such as https://issuer.example.com#248289761001",
})

/** Group: the OIDC issuer, `#` and the issuer's group. The Kubernetes group has the same name. */
export const GroupIdSchema = Type.String({
  maxLength: 512,
  pattern: OF_ISSUER,
  description: "Issuer and name of the group: <issuer>#<group>.",
  [ALLOWED]: "an issuer's URL, # and a group of its tokens, such as https://issuer.example.com#engineers",
})

export const OrganizationSpecSchema = Type.Object({
  displayName: DisplayName(),
  category: Type.Optional(Text(32, "Category of the organization, free text.", { default: "personal" })),
  caps: Type.Optional(SpendCaps("organization, over all its projects")),
  members: Type.Optional(
    Type.Array(
      Type.Object({
        userId: UserIdSchema,
        email: Type.Optional(Text(320, "Contact address.")),
        role: StringEnum(ORGANIZATION_ROLES, {
          description: "Role in the organization. An owner or admin is an admin of its projects.",
        }),
      }),
      {
        description: "Members of the organization.",
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
        role: StringEnum(ORGANIZATION_ROLES, { description: "Role of every user in the group." }),
      }),
      {
        description: "Groups whose users are members, according to the issuer's tokens. The highest role applies.",
        maxItems: 100,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["group"],
      },
    ),
  ),
})
export type OrganizationSpec = Static<typeof OrganizationSpecSchema>

export const OrganizationStatusSchema = Type.Object({
  observedGeneration: ObservedGeneration,
  conditions: Type.Optional(ConditionList),
  spending: Type.Optional(SpendingStatus()),
})

export type OrganizationStatus = Static<typeof OrganizationStatusSchema>

export type Organization = KubeObject<OrganizationSpec, OrganizationStatus>
export type StoredOrganization = Stored<Organization>

/** Finalizer that holds an Organization while it has Projects. */
export const ORGANIZATION_FINALIZER = `${GROUP}/projects`

/** Conditions of an Organization. */
export const OrganizationCondition = { Ready: "Ready", Stalled: "Stalled", WithinCaps: WITHIN_CAPS } as const

export const ORGANIZATION = defineKind({
  kind: "Organization",
  plural: "organizations",
  singular: "organization",
  shortNames: ["borg"],
  namespaced: false,
  description: "A group of people who own projects together.",
  spec: OrganizationSpecSchema,
  status: OrganizationStatusSchema,
  conditions: Object.values(OrganizationCondition),
  printerColumns: [
    { name: "Display name", type: "string", jsonPath: ".spec.displayName" },
    { name: "Category", type: "string", jsonPath: ".spec.category" },
    { name: "Ready", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].status" },
    AGE_COLUMN,
  ],
})
