import { UserIdSchema } from "../../apis/organization.ts"
import { ACCOUNT_PAGE } from "../../http/query.ts"
import {
  MemberRecordSchema,
  MemberRoleSchema,
  OrganizationCreationSchema,
  OrganizationRecordSchema,
  OrganizationUpdateSchema,
  ProjectCreationSchema,
  ProjectRecordSchema,
  ProjectUpdateSchema,
} from "../accounts/schema.ts"
import {
  bodySchema,
  IDEMPOTENCY_KEY,
  IF_MATCH,
  type Json,
  json,
  jsonOrYaml,
  links,
  operation,
  pageParameters,
  pathParameter,
  published,
  recordResponse,
  schemaRef,
} from "./parts.ts"

const TAGS = ["accounts"]

const ORGANIZATION = { id: "acme-9f3c01ab7e", displayName: "Acme", category: "company", role: "owner" }
const PROJECT = { id: "reports-77ab01c4d2", displayName: "Reports", organizationId: ORGANIZATION.id }

/** What can be done with an organization of this id, and with a project. */
const OF_ORGANIZATION = { org_id: "$response.body#/id" }
const NEXT_OF_ORGANIZATION = links({
  updateOrganization: OF_ORGANIZATION,
  listMembers: OF_ORGANIZATION,
  setMemberRole: OF_ORGANIZATION,
  listProjects: OF_ORGANIZATION,
  createProject: OF_ORGANIZATION,
})
const NEXT_OF_PROJECT = links({
  updateProject: { project_id: "$response.body#/id" },
  listProjects: { org_id: "$response.body#/organizationId" },
})

/** The schemas that `accountPaths` refers to. */
export function accountSchemas(): Json {
  return {
    OrganizationCreation: bodySchema(OrganizationCreationSchema),
    OrganizationUpdate: bodySchema(OrganizationUpdateSchema),
    OrganizationRecord: published(OrganizationRecordSchema),
    OrganizationList: listSchema("organizations", "OrganizationRecord"),
    MemberRole: bodySchema(MemberRoleSchema),
    MemberRecord: published(MemberRecordSchema),
    MemberList: listSchema("members", "MemberRecord"),
    ProjectCreation: bodySchema(ProjectCreationSchema),
    ProjectUpdate: bodySchema(ProjectUpdateSchema),
    ProjectRecord: published(ProjectRecordSchema),
    ProjectList: listSchema("projects", "ProjectRecord"),
  }
}

/** Lists of the account scope have no total (contract, "Account-scope operations"). */
function listSchema(items: string, item: string): Json {
  const properties = { [items]: { type: "array", items: schemaRef(item) } }
  return { type: "object", required: [items], additionalProperties: false, properties }
}

/** The contract's account-scope endpoints, for signed-in people only, on the base domain. */
export function accountPaths(): Json {
  const paths = { ...organizationPaths(), ...memberPaths(), ...projectPaths() }
  return Object.fromEntries(Object.entries(paths).map(([path, item]) => [path, forPeople(item as Json)]))
}

function forPeople(item: Json): Json {
  const operations = Object.entries(item).map(([method, parts]) => [
    method,
    { ...(parts as Json), security: [{ bearer: [] }] },
  ])
  return Object.fromEntries(operations)
}

function organizationPaths(): Json {
  return {
    "/organizations": {
      get: operation("listOrganizations", "List the caller's organizations, newest first.", {
        tags: TAGS,
        parameters: pageParameters(ACCOUNT_PAGE),
        responses: { "200": { description: "A page of organizations.", content: json("OrganizationList") } },
      }),
      post: operation("createOrganization", "Make an organization; the caller becomes its owner.", {
        tags: TAGS,
        parameters: [IDEMPOTENCY_KEY],
        requestBody: {
          required: true,
          content: jsonOrYaml("OrganizationCreation", { name: "Acme", category: "company" }),
        },
        responses: {
          "201": { ...recordResponse("Made.", json("OrganizationRecord", ORGANIZATION)), ...NEXT_OF_ORGANIZATION },
        },
        problems: [422],
      }),
    },
    "/organizations/{org_id}": {
      patch: operation("updateOrganization", "Change an organization (admin or higher in it).", {
        tags: TAGS,
        parameters: [pathParameter("org_id", "Id."), IF_MATCH],
        requestBody: { required: true, content: jsonOrYaml("OrganizationUpdate", { displayName: "Acme Trains" }) },
        responses: { "200": recordResponse("The changed organization.", json("OrganizationRecord")) },
        problems: [404, 412],
      }),
    },
  }
}

function memberPaths(): Json {
  const organization = pathParameter("org_id", "Id.")
  const member = pathParameter("member_user_id", "The person's userId, URL-encoded.", {
    ...published(UserIdSchema),
    examples: ["https://issuer.example.com#248289761001"],
  })
  return {
    "/organizations/{org_id}/members": {
      get: operation("listMembers", "List an organization's members (any member of it).", {
        tags: TAGS,
        parameters: [organization, ...pageParameters(ACCOUNT_PAGE)],
        responses: { "200": { description: "A page of members.", content: json("MemberList") } },
        problems: [404],
      }),
    },
    "/organizations/{org_id}/members/{member_user_id}": {
      put: operation("setMemberRole", "Give a person a role (admin or higher; only owners grant owner).", {
        tags: TAGS,
        parameters: [organization, member],
        requestBody: { required: true, content: jsonOrYaml("MemberRole", { role: "admin" }) },
        responses: { "200": { description: "Done.", content: { "application/json": { schema: { type: "null" } } } } },
        problems: [404, 409],
      }),
    },
  }
}

function projectPaths(): Json {
  const organization = pathParameter("org_id", "Id.")
  return {
    "/organizations/{org_id}/projects": {
      get: operation("listProjects", "List an organization's projects, newest first (any member of it).", {
        tags: TAGS,
        parameters: [organization, ...pageParameters(ACCOUNT_PAGE)],
        responses: { "200": { description: "A page of projects.", content: json("ProjectList") } },
        problems: [404],
      }),
      post: operation("createProject", "Make a project (admin or higher in the organization).", {
        tags: TAGS,
        parameters: [organization, IDEMPOTENCY_KEY],
        requestBody: { required: true, content: jsonOrYaml("ProjectCreation", { name: "Reports" }) },
        responses: { "201": { ...recordResponse("Made.", json("ProjectRecord", PROJECT)), ...NEXT_OF_PROJECT } },
        problems: [404, 422],
      }),
    },
    "/projects/{project_id}": {
      patch: operation("updateProject", "Change a project (admin or higher in its organization).", {
        tags: TAGS,
        parameters: [pathParameter("project_id", "Id."), IF_MATCH],
        requestBody: { required: true, content: jsonOrYaml("ProjectUpdate", { displayName: "Quarterly reports" }) },
        responses: { "200": recordResponse("The changed project.", json("ProjectRecord")) },
        problems: [404, 412],
      }),
    },
  }
}
