import Type, { type Static } from "typebox"
import { type SpendCaps, SpendCapsSchema, SpendingStatus } from "../../../core/apis/caps.ts"
import { DisplayName, ORGANIZATION_ROLES } from "../../../core/apis/organization.ts"
import { StringEnum } from "../../../core/apis/schema.ts"
import { accountConditionsField, ignoredConditions } from "../../../core/records/conditions.ts"
import { Repeated } from "../../repetition.ts"

/** Schemas of organizations, members and projects. The property names are exactly those of the contract. */

const name = DisplayName()
const category = Type.String({ maxLength: 32, description: "Category of the organization, free text." })
const role = StringEnum(ORGANIZATION_ROLES)

/** Body of POST /organizations. */
export const OrganizationCreationSchema = Type.Object({
  name,
  category: Type.Optional(Type.String({ ...category, default: "personal" })),
})
export type OrganizationCreation = Static<typeof OrganizationCreationSchema>

/** Body of PATCH /organizations/{org_id}. */
export const OrganizationUpdateSchema = Type.Object({
  displayName: name,
  category: Type.Optional(
    Type.Unsafe<string | null>({ ...category, type: ["string", "null"], description: "Null: unchanged." }),
  ),
  id: Repeated(),
  role: Repeated(role),
  conditions: ignoredConditions(),
})
export type OrganizationUpdate = Static<typeof OrganizationUpdateSchema>

export const OrganizationRecordSchema = Type.Object({
  id: Type.String(),
  displayName: Type.String(),
  category: Type.String(),
  role: StringEnum(ORGANIZATION_ROLES, { description: "Role of the caller." }),
  conditions: accountConditionsField(),
})
export type OrganizationRecord = Static<typeof OrganizationRecordSchema>

/** Body of PUT /organizations/{org_id}/members/{member_user_id}. */
export const MemberRoleSchema = Type.Object({ role })
export type MemberRole = Static<typeof MemberRoleSchema>

export const MemberRecordSchema = Type.Object({
  userId: Type.String({ description: "Issuer and subject of the user's identity: <issuer>#<subject>." }),
  email: Type.Unsafe<string | null>({ type: ["string", "null"], description: "Null: unknown." }),
  role,
})
export type MemberRecord = Static<typeof MemberRecordSchema>

/** Body of POST /organizations/{org_id}/projects. */
export const ProjectCreationSchema = Type.Object({ name })
export type ProjectCreation = Static<typeof ProjectCreationSchema>

/** Caps that replace the present ones. Null: unchanged, as in every PATCH. */
const CapsUpdateSchema = Type.Unsafe<SpendCaps | null>({
  ...SpendCapsSchema,
  type: ["object", "null"],
  description: "Caps in place of the present ones; {} removes them. Null: unchanged.",
})

/** Body of PATCH /projects/{project_id}. */
export const ProjectUpdateSchema = Type.Object({
  displayName: name,
  caps: Type.Optional(CapsUpdateSchema),
  id: Repeated(),
  organizationId: Repeated(),
  conditions: ignoredConditions(),
  spending: Type.Optional(Type.Unsafe<unknown>({ type: ["object", "null"], description: "Ignored." })),
})
export type ProjectUpdate = Static<typeof ProjectUpdateSchema>

/** Declares an object or null. */
function OrNull<Value>({ properties, required }: { properties: unknown; required?: unknown }, description: string) {
  return Type.Unsafe<Value | null>({
    type: ["object", "null"],
    description,
    properties,
    ...(required !== undefined && { required }),
  })
}

export const ProjectRecordSchema = Type.Object({
  id: Type.String({ description: "Id of the project, and the first label of its host names." }),
  displayName: Type.String(),
  organizationId: Type.String(),
  caps: OrNull<SpendCaps>(SpendCapsSchema, "Maximum spending of the project. Null: no caps."),
  spending: OrNull<Static<ReturnType<typeof SpendingStatus>>>(
    SpendingStatus(),
    "Spending of this month. Null without maxMonthlyUsd, and for some seconds after it was set.",
  ),
  conditions: accountConditionsField(),
})
export type ProjectRecord = Static<typeof ProjectRecordSchema>
