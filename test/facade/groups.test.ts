import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { StoredOrganization } from "../../src/core/apis/organization.ts"
import { GroupsLog } from "../../src/core/identity/groups-log.ts"
import { TokenVerifier } from "../../src/core/identity/oidc.ts"
import { ORGANIZATIONS, PROJECTS } from "../../src/core/resources.ts"
import { createLogger } from "../../src/core/telemetry/logger.ts"
import { BASE_DOMAIN, caller, problemIn } from "../harness/caller.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { ManualClock } from "../harness/manual-clock.ts"
import { AUDIENCE, type Issuer, startIssuer } from "../oidc.ts"
import { bearer } from "./tenants.ts"

const fixture = projectFixture("facade-groups")
let issuer: Issuer
let replica: Replica
const call = caller(() => replica, fixture)

/** Claims as Entra ID issues them above 200 groups. */
const OVERAGE = {
  _claim_names: { groups: "src1" },
  _claim_sources: { src1: { endpoint: "https://graph.example/private-endpoint" } },
}
const FAULTS = {
  overage: OVERAGE,
  "overage of the implicit flow": { hasgroups: true },
  object: { groups: { engineers: true } },
  numbers: { groups: [17, 18] },
}
const LACKS = { missing: {}, empty: { groups: [] }, "another group": { groups: ["strangers"] } }

const verifier = () => new TokenVerifier({ issuers: [{ issuer: issuer.url, audience: AUDIENCE }], clock: systemClock })

beforeAll(async () => {
  issuer = await startIssuer()
  replica = await startReplica({ tokens: verifier() })
  const groups = [{ group: `${issuer.url}#engineers`, role: "developer" }]
  const members = [{ userId: `${issuer.url}#vera`, role: "viewer" }]
  await fixture.client.patch(PROJECTS, { name: fixture.project }, { merge: { spec: { groups, members } } })
  const organization = {
    apiVersion: "berth.dev/v1alpha1",
    kind: "Organization",
    metadata: { name: fixture.organization },
    spec: { displayName: "Acme", groups: [{ group: `${issuer.url}#engineers`, role: "member" }] },
  }
  await fixture.client.create(ORGANIZATIONS, organization as unknown as StoredOrganization)
})
afterAll(() => Promise.all([replica.close(), issuer.close()]))

async function answersTo(claims: object) {
  const own = { key: "", ...bearer(await issuer.token({ ...claims })) }
  const host = { ...own, host: BASE_DOMAIN }
  return {
    whoAmI: () => call("/1/whoami", own),
    elsewhere: () => call("/1/whoami", { ...own, host: `no-such-project.${BASE_DOMAIN}` }),
    organizations: async () =>
      (await (await call("/1/organizations", host)).json()) as { organizations: unknown[]; warning: string | null },
    members: () => call(`/1/organizations/${fixture.organization}/members`, host),
    noMembers: () => call("/1/organizations/no-such-one/members", host),
  }
}

describe("a person whose role comes from a group", () => {
  it("has it while the token names the group, as a list or as one name", async () => {
    for (const groups of [["x", "engineers"], "engineers"]) {
      const { whoAmI, organizations } = await answersTo({ sub: "gina", groups })
      const count = Array.isArray(groups) ? 2 : 1
      expect(await (await whoAmI()).json()).toMatchObject({ role: "developer", groups: count, warning: null })
      const expected = { organizations: [{ role: "member" }], warning: null }
      await expect.poll(organizations, { timeout: 30_000 }).toMatchObject(expected)
    }
  })

  it.each(Object.entries({ ...FAULTS, ...LACKS }))(
    "reads why not, in the same words everywhere, if the token has: %s",
    async (what, claims) => {
      const { whoAmI, elsewhere, organizations, members, noMembers } = await answersTo({
        sub: `gina ${what}`,
        ...claims,
      })
      const { organizations: own, warning } = await organizations()
      expect([own, warning]).toEqual([[], expect.any(String)])
      const { status, detail } = await problemIn(await whoAmI())
      expect([status, detail]).toEqual([404, `You have no role in a project of this address. ${warning}`])
      // A project and an organization that don't exist look the same.
      expect((await problemIn(await elsewhere())).detail).toBe(detail)
      const other = (await problemIn(await members())).detail
      expect(other.replace(fixture.organization, "no-such-one")).toBe((await problemIn(await noMembers())).detail)
      expect(other.endsWith(String(warning))).toBe(what in FAULTS)
      // The project's random name may have these digits.
      for (const text of [warning, other.replaceAll(fixture.project, "p")]) {
        expect(text).not.toMatch(/private-endpoint|strangers|17/)
      }
    },
  )

  it.each(Object.entries(FAULTS))("is warned beside a role of their own, if the token has: %s", async (_, claims) => {
    const { whoAmI } = await answersTo({ sub: "vera", ...claims })
    const { detail } = await problemIn(await (await answersTo({ sub: "nora", ...claims })).whoAmI())
    const shown = (await (await whoAmI()).json()) as { warning: string }
    expect(shown).toMatchObject({ role: "viewer", groups: 0, warning: expect.any(String) })
    expect(detail).toBe(`You have no role in a project of this address. ${shown.warning}`)
  })

  it("is not warned beside a role of their own, if the token has no group", async () => {
    for (const claims of Object.values(LACKS)) {
      const { whoAmI } = await answersTo({ sub: "vera", ...claims })
      expect(await (await whoAmI()).json()).toMatchObject({ role: "viewer", warning: null })
    }
  })
})

describe("the log of people whose groups can't be seen", () => {
  const linesOf = (text: string, sub: string) =>
    text
      .split("\n")
      .filter((line) => line.includes("Groups in tokens"))
      .map((line) => JSON.parse(line) as Record<string, unknown>)
      .filter(({ user }) => user === `${issuer.url}#${sub}`)

  it("has one line of a person, with the reason and no other claim", async () => {
    for (const [sub, claims] of [
      ["lena", OVERAGE],
      ["lars", {}],
    ] as const) {
      const { whoAmI, organizations } = await answersTo({ sub, email: `${sub}@private.example`, ...claims })
      for (let i = 0; i < 3; i++) await whoAmI()
      await organizations()
    }
    const [lena, lars] = [linesOf(replica.logged(), "lena"), linesOf(replica.logged(), "lars")]
    expect(lena).toEqual([expect.objectContaining({ reason: "GroupsOmitted" })])
    expect(lars).toEqual([expect.objectContaining({ reason: "GroupsMissing" })])
    expect(JSON.stringify([lena, lars])).not.toMatch(/private/)
  })

  it("repeats the line after an hour, and has none of a person if no group has a role", async () => {
    const clock = new ManualClock()
    const lines: string[] = []
    const logger = createLogger({
      level: "info",
      name: "facade",
      destination: { write: (line) => void lines.push(line) },
    })
    let hasGroupRoles = false
    const log = new GroupsLog({ hasGroupRoles: () => hasGroupRoles, clock, logger })
    const { verify } = log.noting(verifier())
    const overage = await issuer.token({ sub: "rosa", ...OVERAGE })
    const counts = async (): Promise<number> => {
      await verify(overage)
      await verify("not a token")
      return linesOf(lines.join(""), "rosa").length
    }
    expect([await counts(), await counts()]).toEqual([1, 1])
    clock.advance(3599)
    expect(await counts()).toBe(1)
    clock.advance(2)
    expect(await counts()).toBe(2)
    const rolf = await verify(await issuer.token({ sub: "rolf" }))
    const noted = (): number => {
      if (rolf !== undefined) log.noteWithoutRole(rolf)
      return linesOf(lines.join(""), "rolf").length
    }
    expect(noted()).toBe(0)
    hasGroupRoles = true
    expect([noted(), noted()]).toEqual([1, 1])
  })
})
