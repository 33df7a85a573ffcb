import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { KeyCreated } from "../../src/api/resources/keys/schema.ts"
import { caller, problemIn } from "../harness/caller.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { type Issuer, startIssuer } from "../oidc.ts"
import { GITHUB_CLAIMS, workloadVerifier } from "../workloads.ts"
import { bearer } from "./tenants.ts"

/** Keys without a value, for which the tokens of a CI system stand. */
const fixture = projectFixture("facade-workloads")
let ci: Issuer
let replica: Replica
const call = caller(() => replica, fixture)

beforeAll(async () => {
  ci = await startIssuer()
  replica = await startReplica({ workloads: workloadVerifier(ci) })
})
afterAll(() => Promise.all([replica.close(), ci.close()]))

const trusted = (claims: Record<string, string>) => ({ issuer: ci.url, claims })

async function made(name: string, claims: Record<string, string>, more: object = {}): Promise<KeyCreated> {
  const response = await call("/1/keys", { body: { name, role: "developer", oidc: trusted(claims), ...more } })
  expect(response.status, await response.clone().text()).toBe(201)
  return (await response.json()) as KeyCreated
}

const asWorkflow = async (path: string, claims: object = {}, body?: object) =>
  call(path, { key: "", ...bearer(await ci.token({ ...GITHUB_CLAIMS, ...claims })), ...(body && { body }) })

describe("a key for which tokens stand", () => {
  it("has no value, and its record has the claims", async () => {
    const key = await made("no-value", { repository: "acme/other", ref: "refs/heads/main" })
    expect(key).toMatchObject({ value: "", oidc: trusted({ repository: "acme/other", ref: "refs/heads/main" }) })
    const record = (await (await call(`/1/keys/${key.id}`)).json()) as object
    expect(record).toMatchObject({ oidc: trusted({ repository: "acme/other", ref: "refs/heads/main" }) })
    const repeated = await call(`/1/keys/${key.id}`, { method: "PATCH", body: record })
    expect(repeated.status, await repeated.text()).toBe(200)
    const changed = { oidc: trusted({ repository: "acme/train" }) }
    const refused = await problemIn(await call(`/1/keys/${key.id}`, { method: "PATCH", body: changed }))
    expect(refused).toMatchObject({ status: 400, errors: [{ pointer: "/oidc" }] })
  })

  it("lets a token with its claims act with its role, until the token expires or the key is deleted", async () => {
    const key = await made("deploys", { repository: "acme/train", environment: "production" })
    const exp = Math.floor(Date.now() / 1000) + 240
    const me = await (await asWorkflow("/1/whoami", { exp })).json()
    const expires_at = new Date(exp * 1000).toISOString().replace(".000", "")
    expect(me).toMatchObject({ kind: "key", id: key.id, name: "deploys", role: "developer", expires_at })
    expect((await asWorkflow("/1/jobs", {}, { image: "a" })).status).toBe(201)
    expect((await asWorkflow("/1/keys", {}, { name: "mine", role: "viewer" })).status).toBe(403)
    expect((await call(`/1/keys/${key.id}`, { method: "DELETE" })).status).toBe(204)
    expect((await asWorkflow("/1/whoami")).status).toBe(401)
  })

  it("is the one with the highest role, if the token has the claims of several", async () => {
    const wide = await made("wide", { repository: "acme/train" }, { role: "viewer" })
    const narrow = await made("narrow", { sub: GITHUB_CLAIMS.sub, ref: "refs/heads/main" }, { role: "admin" })
    expect(await (await asWorkflow("/1/whoami")).json()).toMatchObject({ id: narrow.id, role: "admin" })
    expect(await (await asWorkflow("/1/whoami", { ref: "refs/heads/x" })).json()).toMatchObject({ id: wide.id })
    for (const { id } of [wide, narrow]) await call(`/1/keys/${id}`, { method: "DELETE" })
  })

  it("is refused with the claims of the token in plain words, if no key has them", async () => {
    const problem = await problemIn(await asWorkflow("/1/jobs", { repository: "acme/elsewhere", environment: null }))
    expect(problem.status).toBe(401)
    expect(problem.detail).toMatch(/^No key of this project trusts this token[.] It has the issuer http/)
    expect(problem.detail).toContain('repository "acme/elsewhere", ref "refs/heads/main". An admin')
  })

  it.each<[string, Record<string, string>, string]>([
    [
      "without a claim that says whose it is",
      { ref: "refs/heads/main" },
      "oidc.claims must have one of sub, repository",
    ],
    ["with a pattern in place of a text", { repository: "acme/*" }, "compares it exactly"],
    ["without claims", {}, "must not be empty"],
  ])("can't be created %s", async (_what, claims, words) => {
    const body = { name: "refused", role: "viewer", oidc: trusted(claims) }
    const problem = await problemIn(await call("/1/keys", { body }))
    expect(problem.status).toBe(400)
    expect(JSON.stringify(problem)).toContain(words)
  })
})
