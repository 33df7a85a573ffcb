import type { Request, Router } from "express"
import type { TSchema } from "typebox"
import { withoutNulls } from "../../apis/nulls.ts"
import { UserIdSchema } from "../../apis/organization.ts"
import { faultsOf } from "../../apis/validate.ts"
import { parseBody } from "../../http/body.ts"
import { preconditionOf } from "../../http/entity-tags.ts"
import { invalidRequest } from "../../http/problem.ts"
import { ACCOUNT_PAGE, Query } from "../../http/query.ts"
import type { SignedIn } from "../admission.ts"
import { type Admission, type Call, endpoint, pathParameter, sendRecord } from "../endpoint.ts"
import { idempotencyKeyOf } from "../../http/route.ts"
import type { Accounts } from "./accounts.ts"
import {
  type MemberRole,
  MemberRoleSchema,
  type OrganizationCreation,
  OrganizationCreationSchema,
  type OrganizationUpdate,
  OrganizationUpdateSchema,
  type ProjectCreation,
  ProjectCreationSchema,
  type ProjectUpdate,
  ProjectUpdateSchema,
} from "./schema.ts"
import { memberRecordsOf, organizationRecordOf, projectRecordOf } from "./translate.ts"

export interface AccountRouteOptions {
  admission: Admission<SignedIn>
  accounts: Accounts
}

type PersonCall = Call<SignedIn>

/** The contract's account-scope endpoints. */
export function accountRoutes(router: Router, { admission, accounts }: AccountRouteOptions): void {
  const put = (path: string, operations: Parameters<typeof endpoint<SignedIn>>[2]): void =>
    endpoint(router, path, operations, admission)
  put("/organizations", {
    GET: { handle: (call) => listOrganizations(call, accounts) },
    POST: { handle: (call) => createOrganization(call, accounts) },
  })
  put("/organizations/:org_id", { PATCH: { handle: (call) => updateOrganization(call, accounts) } })
  put("/organizations/:org_id/members", { GET: { handle: (call) => listMembers(call, accounts) } })
  put("/organizations/:org_id/members/:member_user_id", { PUT: { handle: (call) => setRole(call, accounts) } })
  put("/organizations/:org_id/projects", {
    GET: { handle: (call) => listProjects(call, accounts) },
    POST: { handle: (call) => createProject(call, accounts) },
  })
  put("/projects/:project_id", { PATCH: { handle: (call) => updateProject(call, accounts) } })
}

function listOrganizations({ req, res, principal }: PersonCall, accounts: Accounts): void {
  const page = pageOf(req)
  const found = accounts.organizationsOf(principal.person, page)
  res.json({ organizations: found.map(({ organization, role }) => organizationRecordOf(organization, role)) })
}

/** Without a Location: no GET has an organization by itself, nor a project. */
async function createOrganization(call: PersonCall, accounts: Accounts): Promise<void> {
  const { req, principal } = call
  new Query(req).check()
  const key = idempotencyKeyOf(req)
  const wanted = bodyOf<OrganizationCreation>(req, OrganizationCreationSchema, "The organization")
  const { organization, role } = await accounts.createOrganization(principal.person, wanted, key)
  sendRecord(call, organization, { record: organizationRecordOf(organization, role), status: 201 })
}

async function updateOrganization(call: PersonCall, accounts: Accounts): Promise<void> {
  const { req, principal } = call
  new Query(req).check()
  const update = bodyOf<OrganizationUpdate>(req, OrganizationUpdateSchema, "The update")
  const id = pathParameter(req, "org_id")
  const { organization, role } = await accounts.updateOrganization(id, principal.person, update, preconditionOf(req))
  sendRecord(call, organization, { record: organizationRecordOf(organization, role) })
}

async function listMembers({ req, res, principal }: PersonCall, accounts: Accounts): Promise<void> {
  const { offset, limit } = pageOf(req)
  const { organization } = await accounts.find(pathParameter(req, "org_id"), principal.person)
  res.json({ members: memberRecordsOf(organization).slice(offset, offset + limit) })
}

/** The contract has it answer null. */
async function setRole({ req, res, principal }: PersonCall, accounts: Accounts): Promise<void> {
  new Query(req).check()
  const member = pathParameter(req, "member_user_id")
  const faults = faultsOf(UserIdSchema, member).map(({ detail }) => ({
    pointer: "",
    detail: `member_user_id: ${detail}`,
  }))
  if (faults.length > 0) throw invalidRequest(faults, "The path")
  const wanted = bodyOf<MemberRole>(req, MemberRoleSchema, "The member")
  await accounts.setRole(pathParameter(req, "org_id"), principal.person, member, wanted)
  res.status(200).json(null)
}

async function listProjects({ req, res, principal }: PersonCall, accounts: Accounts): Promise<void> {
  const page = pageOf(req)
  const projects = await accounts.projectsOf(pathParameter(req, "org_id"), principal.person, page)
  res.json({ projects: projects.map(projectRecordOf) })
}

async function createProject(call: PersonCall, accounts: Accounts): Promise<void> {
  const { req, principal } = call
  new Query(req).check()
  const key = idempotencyKeyOf(req)
  const wanted = bodyOf<ProjectCreation>(req, ProjectCreationSchema, "The project")
  const id = pathParameter(req, "org_id")
  const project = await accounts.createProject(id, principal.person, wanted, key)
  sendRecord(call, project, { record: projectRecordOf(project), status: 201 })
}

async function updateProject(call: PersonCall, accounts: Accounts): Promise<void> {
  const { req, principal } = call
  new Query(req).check()
  const update = bodyOf<ProjectUpdate>(req, ProjectUpdateSchema, "The update")
  const id = pathParameter(req, "project_id")
  const project = await accounts.updateProject(id, principal.person, update, preconditionOf(req))
  sendRecord(call, project, { record: projectRecordOf(project) })
}

function pageOf(req: Request): ReturnType<Query["page"]> {
  const query = new Query(req)
  const page = query.page(ACCOUNT_PAGE)
  query.check()
  return page
}

/** The checked body; a null field is a field left out. @throws Problem 400 */
function bodyOf<Body>(req: Request, schema: TSchema, what: string): Body {
  const body = withoutNulls(schema, parseBody(req), "fields")
  const faults = faultsOf(schema, body)
  if (faults.length > 0) throw invalidRequest(faults, what)
  return body as Body
}
