import { createHash } from "node:crypto"
import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { ApiKeySpecSchema, type Role } from "../apis/apikey.ts"
import type { StoredProject } from "../apis/project.ts"
import { findErrors } from "../apis/validate.ts"
import { hashKey, makeApiKey, matchesHash, parseKeyId } from "./apikeys.ts"
import { projectRoles, roleInOrganization, roleInProject } from "./members.ts"
import { hostLabel, projectScope } from "./projects.ts"

describe("API keys", () => {
  it("have the form berth_<keyId>_<256 random bits>, and only the SHA-256 is stored", () => {
    const { value, keyId, tokenHash } = makeApiKey()
    expect(value).toMatch(/^berth_[a-z0-9]{12}_[A-Za-z0-9_-]{43}$/)
    expect(parseKeyId(value)).toBe(keyId)
    expect(tokenHash).toBe(createHash("sha256").update(value).digest("hex"))
    expect(findErrors(ApiKeySpecSchema, { role: "admin", keyId, tokenHash })).toEqual([])
    expect(makeApiKey().value).not.toBe(value)
  })

  it("match their own hash only", () => {
    const { value, tokenHash } = makeApiKey()
    expect(matchesHash(value, tokenHash)).toBe(true)
    expect(matchesHash(`${value.slice(0, -1)}${value.endsWith("A") ? "B" : "A"}`, tokenHash)).toBe(false)
    expect(matchesHash(value, hashKey("another"))).toBe(false)
    expect(matchesHash(value, "")).toBe(false)
  })

  it("are read from no other text", () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        expect(parseKeyId(text)).toBeUndefined()
      }),
    )
    const { value } = makeApiKey()
    for (const text of [
      `${value} `,
      ` ${value}`,
      `${value}\n`,
      `${value}, ${value}`,
      value.toUpperCase(),
      value.slice(1),
    ]) {
      expect(parseKeyId(text)).toBeUndefined()
    }
  })
})

describe("hostLabel", () => {
  it.each([
    ["shop.berth.example", { kind: "project", name: "shop" }],
    ["SHOP.Berth.Example.", { kind: "project", name: "shop" }],
    ["berth.example", { kind: "none" }],
    ["localhost", { kind: "none" }],
    ["10.1.2.3", { kind: "none" }],
    ["[::1]", { kind: "none" }],
    ["shopberth.example", { kind: "none" }],
    ["a.shop.berth.example", { kind: "invalid" }],
    ["-shop.berth.example", { kind: "invalid" }],
    [".berth.example", { kind: "invalid" }],
    ["sh_op.berth.example", { kind: "invalid" }],
    [`${"a".repeat(41)}.berth.example`, { kind: "invalid" }],
  ])("%s: %j", (host, expected) => {
    expect(hostLabel(host, "berth.example")).toEqual(expected)
  })
})

describe("roles", () => {
  const acme = { spec: { displayName: "Acme", members: [{ userId: "i#olga", role: "owner" as const }] } }
  const project = { spec: { displayName: "p", organization: "acme" } }

  it.each<[string, object, object, Role | undefined]>([
    ["an owner is admin", {}, {}, "admin"],
    [
      "a role in the project does not lower the organization's role",
      {},
      { members: [{ userId: "i#olga", role: "viewer" }] },
      "admin",
    ],
    ["a member is developer", { members: [{ userId: "i#olga", role: "member" }] }, {}, "developer"],
    [
      "the project can give a role to users without one",
      { members: [] },
      { members: [{ userId: "i#olga", role: "viewer" }] },
      "viewer",
    ],
    [
      "a member of a group has the group's role",
      { members: [], groups: [{ group: "i#g", role: "member" }] },
      {},
      "developer",
    ],
    [
      "a member of a group has the group's role in the project",
      { members: [] },
      { groups: [{ group: "i#g", role: "viewer" }] },
      "viewer",
    ],
    [
      "the highest role wins",
      { members: [{ userId: "i#olga", role: "member" }], groups: [{ group: "i#h", role: "owner" }] },
      { groups: [{ group: "i#g", role: "viewer" }] },
      "admin",
    ],
    [
      "a group with a user's id is not the user",
      { members: [], groups: [{ group: "i#olga", role: "owner" }] },
      {},
      undefined,
    ],
    ["another group gives no role", { members: [], groups: [{ group: "i#other", role: "owner" }] }, {}, undefined],
  ])("follow from members and groups: %s", (_what, organization, own, role) => {
    const roles = projectRoles({ spec: { ...project.spec, ...own } }, { spec: { ...acme.spec, ...organization } })
    expect(roleInProject({ userId: "i#olga", groups: ["i#g", "i#h"] }, roles)).toBe(role)
  })

  it("are in an organization the highest of the user's and their groups'", () => {
    const spec = { ...acme.spec, groups: [{ group: "i#g", role: "admin" as const }] }
    expect(roleInOrganization({ userId: "i#olga", groups: ["i#g"] }, { spec })).toBe("owner")
    expect(roleInOrganization({ userId: "i#mike", groups: ["i#g"] }, { spec })).toBe("admin")
    expect(roleInOrganization({ userId: "i#g" }, { spec })).toBeUndefined()
  })
})

it("a project uses the namespace in its status, never the one in its spec", () => {
  const project = (spec: object, status?: object) =>
    ({ metadata: { name: "p" }, spec: { organization: "o", ...spec }, status }) as unknown as StoredProject
  expect(projectScope(project({ namespace: "wanted" }, { namespace: "recorded" }))).toEqual({
    id: "p",
    organizationId: "o",
    namespace: "recorded",
  })
  expect(projectScope(project({ namespace: "wanted" }))).toBeUndefined()
  expect(projectScope(project({}, {}))).toBeUndefined()
})
