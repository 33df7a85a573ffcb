import Type, { type Static } from "typebox"
import { ORGANIZATION_ROLES } from "../../apis/organization.ts"
import { StringEnum } from "../../apis/schema.ts"

/** The REST API's shapes of organizations, members and projects, with the contract's property names to the letter. */

const name = Type.String({ minLength: 1, maxLength: 64, description: "Display name; need not be unique." })
const category = Type.String({ maxLength: 32, description: "Category of the organization, free text." })
const role = StringEnum(ORGANIZATION_ROLES)

/** What POST /organizations takes. */
export const OrganizationCreationSchema = Type.Object({
  name,
  category: Type.Optional(Type.String({ ...category, default: "personal" })),
})
export type OrganizationCreation = Static<typeof OrganizationCreationSchema>

/** What PATCH /organizations/{org_id} takes. */
export const OrganizationUpdateSchema = Type.Object({
  displayName: name,
  category: Type.Optional(
    Type.Unsafe<string | null>({ ...category, type: ["string", "null"], description: "Null: unchanged." }),
  ),
})
export type OrganizationUpdate = Static<typeof OrganizationUpdateSchema>

export const OrganizationRecordSchema = Type.Object({
  id: Type.String(),
  displayName: Type.String(),
  category: Type.String(),
  role: StringEnum(ORGANIZATION_ROLES, { description: "Role of the caller." }),
})
export type OrganizationRecord = Static<typeof OrganizationRecordSchema>

/** What PUT /organizations/{org_id}/members/{member_user_id} takes. */
export const MemberRoleSchema = Type.Object({ role })
export type MemberRole = Static<typeof MemberRoleSchema>

export const MemberRecordSchema = Type.Object({
  userId: Type.String({ description: "Issuer and subject of the user's identity: <issuer>#<subject>." }),
  email: Type.Unsafe<string | null>({ type: ["string", "null"], description: "Null: unknown." }),
  role,
})
export type MemberRecord = Static<typeof MemberRecordSchema>

/** What POST /organizations/{org_id}/projects takes. */
export const ProjectCreationSchema = Type.Object({ name })
export type ProjectCreation = Static<typeof ProjectCreationSchema>

/** What PATCH /projects/{project_id} takes. */
export const ProjectUpdateSchema = Type.Object({ displayName: name })
export type ProjectUpdate = Static<typeof ProjectUpdateSchema>

export const ProjectRecordSchema = Type.Object({
  id: Type.String({ description: "Id of the project, and the first label of its host names." }),
  displayName: Type.String(),
  organizationId: Type.String(),
})
export type ProjectRecord = Static<typeof ProjectRecordSchema>
