import { afterAll, beforeAll, expect, it } from "vitest"
import { systemClock } from "../../src/core/apis/clock.ts"
import { TokenVerifier } from "../../src/core/identity/oidc.ts"
import { PROJECTS } from "../../src/core/resources.ts"
import { bearer } from "../facade/tenants.ts"
import { BASE_DOMAIN, caller, problemIn } from "../harness/caller.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { AUDIENCE, type Issuer, startIssuer } from "../oidc.ts"
import { GITHUB_CLAIMS, WORKLOAD_AUDIENCE, workloadVerifier } from "../workloads.ts"

/** Anybody can get valid tokens of a public CI system, with any audience. They must open nothing that no admin has given. */
const [ours, theirs] = [projectFixture("attacks-workloads"), projectFixture("attacks-workloads-other")]
let [ci, people, stranger]: Issuer[] = []
let replica: Replica
const [call, callTheirs] = [caller(() => replica, ours), caller(() => replica, theirs)]

beforeAll(async () => {
  ;[ci, people, stranger] = await Promise.all([startIssuer(), startIssuer(), startIssuer()])
  const tokens = new TokenVerifier({ issuers: [{ issuer: of(people).url, audience: AUDIENCE }], clock: systemClock })
  replica = await startReplica({ tokens, workloads: workloadVerifier(of(ci)) })
  const claims = { repository: "acme/train", environment: "production" }
  const body = { name: "deploys", role: "developer", oidc: { issuer: of(ci).url, claims } }
  expect((await call("/1/keys", { body })).status).toBe(201)
})
afterAll(() => Promise.all([replica.close(), ...[ci, people, stranger].map((issuer) => of(issuer).close())]))

function of(issuer: Issuer | undefined): Issuer {
  if (issuer === undefined) throw new Error("no issuer runs")
  return issuer
}

const token = (claims: object = {}, issuer = ci, header = {}) =>
  of(issuer).token({ ...GITHUB_CLAIMS, ...claims }, header)
const whoAmI = async (claims: object = {}, host?: string) =>
  call("/1/whoami", { key: "", ...bearer(await token(claims)), ...(host !== undefined && { host }) })

it("the token of the repository and environment that the key names is accepted", async () => {
  expect((await whoAmI()).status).toBe(200)
})

it.each<[string, object]>([
  ["a fork, or a repository of the same name", { repository: "mallory/train" }],
  ["a repository whose name begins the same", { repository: "acme/train-2" }],
  ["the same name in capitals", { repository: "ACME/train" }],
  ["another environment", { environment: "staging" }],
  ["no environment", { environment: null }],
  ["an environment that is a list", { environment: ["production"] }],
  ["an environment that is an object", { environment: { production: true } }],
  ["the claims within another one", { repository: null, claims: { repository: "acme/train" } }],
  ["a token for another service, which that service sends on", { aud: "sts.amazonaws.com" }],
  ["a token for people's audience", { aud: AUDIENCE }],
  ["no audience", { aud: null }],
  ["an expired token", { exp: 1 }],
  ["a token without an expiry", { exp: null }],
])("it is refused for %s", async (_what, claims) => {
  expect((await whoAmI(claims)).status).toBe(401)
})

it("a token that another issuer signed is refused, whatever issuer it names", async () => {
  const forged = { iss: of(ci).url }
  for (const one of [await token({}, stranger), await token(forged, stranger), await token(forged, people)])
    expect((await call("/1/whoami", { key: "", ...bearer(one) })).status).toBe(401)
})

it("a person with the same claims at the issuer of people is no workload, and gets no role by them", async () => {
  const person = await token({ aud: AUDIENCE }, people)
  expect((await call("/1/whoami", { key: "", ...bearer(person) })).status).toBe(404)
})

it("a workload is never a person: not by a membership of its subject, and not on the operations of accounts", async () => {
  const members = [{ userId: `${of(ci).url}#${GITHUB_CLAIMS.sub}`, role: "admin" }]
  await theirs.client.patch(PROJECTS, { name: theirs.project }, { merge: { spec: { members } } })
  expect((await callTheirs("/1/whoami", { key: "", ...bearer(await token()) })).status).toBe(401)
  expect((await whoAmI({}, `no-such-project.${BASE_DOMAIN}`)).status).toBe(401)
  for (const aud of [WORKLOAD_AUDIENCE, AUDIENCE])
    expect(
      (await call("/1/organizations", { key: "", host: BASE_DOMAIN, ...bearer(await token({ aud })) })).status,
    ).toBe(401)
})

it("another tenant's key for the same repository opens that tenant's project only, and no answer shows which projects have one", async () => {
  const absent = await problemIn(await whoAmI({}, `no-such-project.${BASE_DOMAIN}`))
  const refused = await problemIn(await callTheirs("/1/whoami", { key: "", ...bearer(await token()) }))
  expect(refused.detail).toBe(absent.detail)
  const oidc = { issuer: of(ci).url, claims: { repository: "acme/train" } }
  const body = { name: "squatter", role: "admin", oidc }
  expect((await callTheirs("/1/keys", { body })).status).toBe(201)
  expect(await (await whoAmI()).json()).toMatchObject({ name: "deploys", role: "developer", project_id: ours.project })
  const there = await callTheirs("/1/whoami", { key: "", ...bearer(await token()) })
  expect(await there.json()).toMatchObject({ name: "squatter", project_id: theirs.project })
})

it("a key for an issuer that the installation does not allow is worth nothing", async () => {
  const oidc = { issuer: of(stranger).url, claims: { repository: "acme/train" } }
  expect((await call("/1/keys", { body: { name: "own-issuer", role: "admin", oidc } })).status).toBe(201)
  expect((await call("/1/whoami", { key: "", ...bearer(await token({}, stranger)) })).status).toBe(401)
})

it("a key without a value is not opened by an empty one, and its record has no hash", async () => {
  const { keys } = (await (await call("/1/keys?name=deploys")).json()) as { keys: { id: string }[] }
  const record = await (await call(`/1/keys/${keys[0]?.id}`)).text()
  expect(record).not.toMatch(/hash|"value"/i)
  for (const key of [" ", "berth_", "undefined"]) expect((await call("/1/whoami", { key })).status).toBe(401)
})

it("refused tokens count as failed authentications of their address", async () => {
  const limited = await startReplica({ workloads: workloadVerifier(of(ci)), settings: { failuresPerMinute: 2 } })
  try {
    const callLimited = caller(() => limited, ours)
    const statuses: number[] = []
    for (let count = 0; count < 4; count++) {
      const other = await token({ repository: "mallory/train" })
      statuses.push((await callLimited("/1/whoami", { key: "", ...bearer(other) })).status)
    }
    expect(statuses).toEqual([401, 401, 429, 429])
    expect((await callLimited("/1/whoami", { key: "", ...bearer(await token()) })).status).toBe(200)
  } finally {
    await limited.close()
  }
})
