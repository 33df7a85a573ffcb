import {
  MemberRecordSchema,
  MemberRoleSchema,
  OrganizationCreationSchema,
  OrganizationRecordSchema,
  OrganizationUpdateSchema,
  ProjectCreationSchema,
  ProjectRecordSchema,
  ProjectUpdateSchema,
} from "../schemas/account.ts"
import {
  bodySchema,
  createdResponse,
  IDEMPOTENCY_KEY,
  type Json,
  json,
  jsonOrYaml,
  operation,
  pathParameter,
  published,
  queryParameter,
  recordResponse,
  schemaRef,
} from "./parts.ts"

const TAGS = ["accounts"]

const ORGANIZATION = { id: "acme-9f3c01ab7e", displayName: "Acme", category: "company", role: "owner" }
const PROJECT = { id: "reports-77ab01c4d2", displayName: "Reports", organizationId: ORGANIZATION.id }

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
        parameters: pageParameters(),
        responses: { "200": { description: "A page of organizations.", content: json("OrganizationList") } },
      }),
      post: operation("createOrganization", "Make an organization; the caller becomes its owner.", {
        tags: TAGS,
        parameters: [IDEMPOTENCY_KEY],
        requestBody: {
          required: true,
          content: jsonOrYaml("OrganizationCreation", { name: "Acme", category: "company" }),
        },
        responses: { "201": createdResponse("Made.", json("OrganizationRecord", ORGANIZATION)) },
        problems: [422],
      }),
    },
    "/organizations/{organization}": {
      patch: operation("updateOrganization", "Change an organization (admin or higher in it).", {
        tags: TAGS,
        parameters: [pathParameter("organization", "Id.")],
        requestBody: { required: true, content: jsonOrYaml("OrganizationUpdate", { displayName: "Acme Trains" }) },
        responses: { "200": recordResponse("The changed organization.", json("OrganizationRecord")) },
        problems: [404],
      }),
    },
  }
}

function memberPaths(): Json {
  const organization = pathParameter("organization", "Id.")
  return {
    "/organizations/{organization}/members": {
      get: operation("listMembers", "List an organization's members (any member of it).", {
        tags: TAGS,
        parameters: [organization, ...pageParameters()],
        responses: { "200": { description: "A page of members.", content: json("MemberList") } },
        problems: [404],
      }),
    },
    "/organizations/{organization}/members/{member}": {
      put: operation("setMemberRole", "Give a person a role (admin or higher; only owners grant owner).", {
        tags: TAGS,
        parameters: [organization, pathParameter("member", "The person's userId, URL-encoded.")],
        requestBody: { required: true, content: jsonOrYaml("MemberRole", { role: "admin" }) },
        responses: { "200": { description: "Done.", content: { "application/json": { schema: { type: "null" } } } } },
        problems: [404, 409],
      }),
    },
  }
}

function projectPaths(): Json {
  const organization = pathParameter("organization", "Id.")
  return {
    "/organizations/{organization}/projects": {
      get: operation("listProjects", "List an organization's projects, newest first (any member of it).", {
        tags: TAGS,
        parameters: [organization, ...pageParameters()],
        responses: { "200": { description: "A page of projects.", content: json("ProjectList") } },
        problems: [404],
      }),
      post: operation("createProject", "Make a project (admin or higher in the organization).", {
        tags: TAGS,
        parameters: [organization, IDEMPOTENCY_KEY],
        requestBody: { required: true, content: jsonOrYaml("ProjectCreation", { name: "Reports" }) },
        responses: { "201": createdResponse("Made.", json("ProjectRecord", PROJECT)) },
        problems: [404, 422],
      }),
    },
    "/projects/{project}": {
      patch: operation("updateProject", "Change a project (admin or higher in its organization).", {
        tags: TAGS,
        parameters: [pathParameter("project", "Id.")],
        requestBody: { required: true, content: jsonOrYaml("ProjectUpdate", { displayName: "Quarterly reports" }) },
        responses: { "200": recordResponse("The changed project.", json("ProjectRecord")) },
        problems: [404],
      }),
    },
  }
}

function pageParameters(): Json[] {
  return [
    queryParameter("offset", { type: "integer", minimum: 0, default: 0 }),
    queryParameter("limit", { type: "integer", minimum: 1, maximum: 100, default: 100 }),
  ]
}
