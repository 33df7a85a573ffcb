import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { ACCOUNT_LIMITS } from "../../src/api/resources/accounts/accounts.ts"
import type { OrganizationRecord } from "../../src/api/resources/accounts/schema.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { ANNOTATIONS } from "../../src/core/apis/meta.ts"
import type { StoredOrganization } from "../../src/core/apis/organization.ts"
import { TokenVerifier } from "../../src/core/identity/oidc.ts"
import { ORGANIZATIONS } from "../../src/core/resources.ts"
import { BASE_DOMAIN, caller, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { AUDIENCE, type Issuer, startIssuer } from "../oidc.ts"

const fixture = projectFixture("attack-organizations")
let issuer: Issuer
let replica: Replica
const call = caller(() => replica, fixture)

beforeAll(async () => {
  issuer = await startIssuer()
  const tokens = new TokenVerifier({ issuers: [{ issuer: issuer.url, audience: AUDIENCE }], clock: systemClock })
  replica = await startReplica({ tokens })
})
afterAll(async () => {
  await replica.close()
  await issuer.close()
})

const userId = (sub: string): string => `${issuer.url}#${sub}`

async function as(sub: string, path: string, options: { method?: string; body?: object } = {}) {
  const headers = { Authorization: `Bearer ${await issuer.token({ sub, email: null })}` }
  return call(path, { ...options, key: "", host: BASE_DOMAIN, headers })
}

const create = (sub: string) => as(sub, "/1/organizations", { body: { name: "Acme" } })

/** Creates as many organizations as one person may. Returns their ids. */
async function createAll(sub: string): Promise<string[]> {
  const ids: string[] = []
  for (let n = 0; n < ACCOUNT_LIMITS.createdOrganizations; n++) {
    const response = await create(sub)
    expect(response.status).toBe(201)
    ids.push(((await response.json()) as OrganizationRecord).id)
  }
  return ids
}

const setRole = (by: string, id: string, whom: string, role: string) =>
  as(by, `/1/organizations/${id}/members/${encodeURIComponent(userId(whom))}`, { method: "PUT", body: { role } })

describe("the limit of a person's organizations", () => {
  it("counts what a person created, not what others made the person an owner of", async () => {
    for (const id of await createAll("mallory"))
      expect((await setRole("mallory", id, "victim", "owner")).status).toBe(200)
    expect((await create("victim")).status).toBe(201)
  })

  it("counts what a person created and has handed over", async () => {
    const [first = ""] = await createAll("maker")
    expect((await setRole("maker", first, "heir", "owner")).status).toBe(200)
    expect((await setRole("heir", first, "maker", "member")).status).toBe(200)
    expect(await problemIn(await create("maker"))).toMatchObject({
      status: 403,
      detail: "You created 50 organizations; the maximum is 50. Ask the cluster's administrator to delete some.",
    })
  })

  it("counts an organization of kubectl, which names no creator, for its first member only", async () => {
    const ids = await createAll("founder")
    for (const name of ids) {
      const members = ["founder", "guest"].map((sub) => ({ userId: userId(sub), role: "owner" }))
      const merge = { metadata: { annotations: { [ANNOTATIONS.createdBy]: null } }, spec: { members } }
      await fixture.client.patch<StoredOrganization>(ORGANIZATIONS, { name }, { merge })
    }
    await eventually(async () => {
      const response = await as("guest", "/1/organizations")
      expect(((await response.json()) as { organizations: object[] }).organizations).toHaveLength(ids.length)
    })
    expect((await create("guest")).status).toBe(201)
    expect((await create("founder")).status).toBe(403)
  })
})
