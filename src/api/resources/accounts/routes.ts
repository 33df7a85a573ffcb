import Type from "typebox"
import { UserIdSchema } from "../../../core/apis/organization.ts"
import { groupsWarning, groupsWithoutRole } from "../../../core/identity/group-claim.ts"
import { nullable } from "../../../core/records/nullable.ts"
import type { AuthenticatedUser } from "../../authentication.ts"
import { listSchema, namedSchema } from "../../http/json-schema.ts"
import { API_ROOT } from "../../http/mount.ts"
import { ACCOUNT_PAGE, paging } from "../../http/query.ts"
import { declareBody, json, record, routeDeclarer } from "../../http/route.ts"
import type { Accounts } from "./accounts.ts"
import {
  MemberRecordSchema,
  MemberRoleSchema,
  OrganizationCreationSchema,
  OrganizationRecordSchema,
  OrganizationUpdateSchema,
  ProjectCreationSchema,
  ProjectRecordSchema,
  ProjectUpdateSchema,
} from "./schema.ts"
import { toMemberRecords, toOrganizationRecord, toProjectRecord } from "./translate.ts"

export interface AccountServices {
  accounts: Accounts
}

const ORGANIZATION = namedSchema("OrganizationRecord", OrganizationRecordSchema, {
  id: "acme-9f3c01ab7e",
  displayName: "Acme",
  category: "company",
  role: "owner",
})
const PROJECT = namedSchema("ProjectRecord", ProjectRecordSchema, {
  id: "reports-77ab01c4d2",
  displayName: "Reports",
  organizationId: "acme-9f3c01ab7e",
  caps: { maxMonthlyUsd: 90, onExceeded: "cancel" },
  spending: { month: "2026-11", spentUsd: 61.2, reservedUsd: 7.1, maxMonthlyUsd: 90, reachedPercent: 50 },
})
// Lists of the account scope have no total (contract, "Account-scope operations").
const ORGANIZATIONS = listSchema("OrganizationList", "organizations", ORGANIZATION, {
  others: Type.Object({
    warning: nullable<string>(
      "string",
      "Reason for which the caller's groups may not count, or give no organization. Null: none is known.",
    ),
  }),
})
const MEMBERS = listSchema("MemberList", "members", namedSchema("MemberRecord", MemberRecordSchema))
const PROJECTS = listSchema("ProjectList", "projects", PROJECT)

const ID = { description: "Id." }
const OF_ORGANIZATION = { org_id: "$response.body#/id" }

/** Route for signed-in users only, on the host without a project. Their roles are those in the organization. */
const route = routeDeclarer<AuthenticatedUser, AccountServices>({
  tag: "accounts",
  servers: [{ url: API_ROOT }],
  security: [{ bearer: [] }],
})

const organizationRoutes = [
  route("GET /organizations", {
    id: "listOrganizations",
    summary: "List the caller's organizations, newest first.",
    query: paging(ACCOUNT_PAGE),
    responses: { 200: json(ORGANIZATIONS, "A page of organizations.") },
    handle: ({ query, principal: { user } }, { accounts }) => {
      const found = accounts.organizationsOf(user, query)
      const organizations = found.map(({ organization, role }) => toOrganizationRecord(organization, role))
      const isInNone = organizations.length === 0 && query.offset === 0
      return { body: { organizations, warning: (isInNone ? groupsWithoutRole(user) : groupsWarning(user)) ?? null } }
    },
  }),
  route("POST /organizations", {
    id: "createOrganization",
    summary: "Create an organization. The caller becomes its owner.",
    body: declareBody("OrganizationCreation", OrganizationCreationSchema, {
      what: "The organization",
      example: { name: "Acme", category: "company" },
    }),
    idempotent: true,
    // No Location header: there is no GET of one organization, nor of one project.
    responses: {
      201: record(ORGANIZATION, "Created.", {
        links: {
          updateOrganization: OF_ORGANIZATION,
          listMembers: OF_ORGANIZATION,
          setMemberRole: OF_ORGANIZATION,
          listProjects: OF_ORGANIZATION,
          createProject: OF_ORGANIZATION,
        },
      }),
    },
    problems: ["being-deleted"],
    handle: async ({ body, idempotencyKey, principal }, { accounts }) => {
      const { organization, role } = await accounts.createOrganization(principal.user, body, idempotencyKey)
      return { of: organization, body: toOrganizationRecord(organization, role) }
    },
  }),
  route("PATCH /organizations/{org_id}", {
    id: "updateOrganization",
    summary: "Change an organization (admin or higher in it).",
    path: { org_id: ID },
    body: declareBody("OrganizationUpdate", OrganizationUpdateSchema, {
      what: "The update",
      example: { displayName: "Acme Trains" },
    }),
    ifMatch: true,
    responses: { 200: record(ORGANIZATION, "The changed organization.") },
    handle: async ({ path, body, precondition, principal }, { accounts }) => {
      const changed = await accounts.updateOrganization(path.org_id, principal.user, body, precondition)
      return { of: changed.organization, body: toOrganizationRecord(changed.organization, changed.role) }
    },
  }),
]

const memberRoutes = [
  route("GET /organizations/{org_id}/members", {
    id: "listMembers",
    summary: "List an organization's members (any member of it).",
    path: { org_id: ID },
    query: paging(ACCOUNT_PAGE),
    responses: { 200: json(MEMBERS, "A page of members.") },
    handle: async ({ path, query, principal }, { accounts }) => {
      const { organization } = await accounts.find(path.org_id, principal.user)
      return { body: { members: toMemberRecords(organization).slice(query.offset, query.offset + query.limit) } }
    },
  }),
  route("PUT /organizations/{org_id}/members/{member_user_id}", {
    id: "setMemberRole",
    summary: "Give a user a role (admin or higher; only owners grant owner).",
    path: {
      org_id: ID,
      member_user_id: {
        description: "User id, URL-encoded.",
        schema: UserIdSchema,
        example: "https://issuer.example.com#248289761001",
      },
    },
    body: declareBody("MemberRole", MemberRoleSchema, { what: "The member", example: { role: "admin" } }),
    // The contract requires null as the body.
    responses: { 200: json<null>({ json: { type: "null" } }, "Done.") },
    problems: ["last-owner"],
    handle: async ({ path, body, principal }, { accounts }) => {
      await accounts.setRole(path.org_id, principal.user, path.member_user_id, body)
      return { body: null }
    },
  }),
]

const projectRoutes = [
  route("GET /organizations/{org_id}/projects", {
    id: "listProjects",
    summary: "List an organization's projects, newest first (any member of it).",
    path: { org_id: ID },
    query: paging(ACCOUNT_PAGE),
    responses: { 200: json(PROJECTS, "A page of projects.") },
    handle: async ({ path, query, principal }, { accounts }) => {
      const projects = await accounts.projectsOf(path.org_id, principal.user, query)
      return { body: { projects: projects.map(toProjectRecord) } }
    },
  }),
  route("POST /organizations/{org_id}/projects", {
    id: "createProject",
    summary: "Create a project (admin or higher in the organization).",
    path: { org_id: ID },
    body: declareBody("ProjectCreation", ProjectCreationSchema, { what: "The project", example: { name: "Reports" } }),
    idempotent: true,
    responses: {
      201: record(PROJECT, "Created.", {
        links: {
          updateProject: { project_id: "$response.body#/id" },
          listProjects: { org_id: "$response.body#/organizationId" },
        },
      }),
    },
    problems: ["being-deleted"],
    handle: async ({ path, body, idempotencyKey, principal }, { accounts }) => {
      const project = await accounts.createProject(path.org_id, principal.user, body, idempotencyKey)
      return { of: project, body: toProjectRecord(project) }
    },
  }),
  route("PATCH /projects/{project_id}", {
    id: "updateProject",
    summary: "Change a project or its caps (admin or higher in its organization).",
    path: { project_id: ID },
    body: declareBody("ProjectUpdate", ProjectUpdateSchema, {
      what: "The update",
      example: { displayName: "Quarterly reports", caps: { maxMonthlyUsd: 90, onExceeded: "cancel" } },
    }),
    ifMatch: true,
    responses: { 200: record(PROJECT, "The changed project.") },
    handle: async ({ path, body, precondition, principal }, { accounts }) => {
      const project = await accounts.updateProject(path.project_id, principal.user, body, precondition)
      return { of: project, body: toProjectRecord(project) }
    },
  }),
]

/** Operations of the contract on organizations, members and projects. */
export const accountRoutes = [...organizationRoutes, ...memberRoutes, ...projectRoutes]
