import { type BerthClient, readBody, type Schemas } from "./client.ts"

export type OrganizationRecord = Schemas["OrganizationRecord"]
export type ProjectRecord = Schemas["ProjectRecord"]
export type MemberRecord = Schemas["MemberRecord"]

/** Objects of a page. Lists of the account scope have no total. */
const PAGE = 100

interface Page {
  limit: number
  offset: number
}

async function allOf<Item>(read: (page: Page) => Promise<Item[]>): Promise<Item[]> {
  const found: Item[] = []
  for (;;) {
    const page = await read({ limit: PAGE, offset: found.length })
    found.push(...page)
    if (page.length < PAGE) return found
  }
}

/** Returns the organizations of a person. @param client at the host without a project */
export function listOrganizations(client: BerthClient): Promise<OrganizationRecord[]> {
  return allOf(async (query) => (await readBody(client.api.GET("/organizations", { params: { query } }))).organizations)
}

/**
 * Returns the sentences about groups of a person that may not count; undefined without any.
 * @param client at the host without a project
 */
export async function groupsWarningFor(client: BerthClient): Promise<string | undefined> {
  const { warning } = await readBody(client.api.GET("/organizations", { params: { query: { limit: 1 } } }))
  return warning ?? undefined
}

export function projectsIn(client: BerthClient, organization: string): Promise<ProjectRecord[]> {
  return allOf(async (query) => {
    const params = { path: { org_id: organization }, query }
    return (await readBody(client.api.GET("/organizations/{org_id}/projects", { params }))).projects
  })
}

export function listMembers(client: BerthClient, organization: string): Promise<MemberRecord[]> {
  return allOf(async (query) => {
    const params = { path: { org_id: organization }, query }
    return (await readBody(client.api.GET("/organizations/{org_id}/members", { params }))).members
  })
}

/** Returns the projects of all organizations of a person. */
export async function listProjects(client: BerthClient): Promise<ProjectRecord[]> {
  const organizations = await listOrganizations(client)
  return (await Promise.all(organizations.map(({ id }) => projectsIn(client, id)))).flat()
}
