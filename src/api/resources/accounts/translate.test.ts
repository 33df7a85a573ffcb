import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { ORGANIZATION_ROLES, type OrganizationRole } from "../../../core/apis/organization.ts"
import { withRole } from "./translate.ts"

type Members = Parameters<typeof withRole>[0]

const ada = { userId: "https://i#ada", email: "ada@example.com", role: "owner" } as const
const bob = { userId: "https://i#bob", role: "member" } as const

describe("withRole", () => {
  it("changes a member's role and leaves the rest of the list", () => {
    expect(withRole([ada, bob], { userId: bob.userId, role: "admin", by: "admin" })).toEqual({
      members: [ada, { ...bob, role: "admin" }],
    })
  })

  it("adds a user who was not a member", () => {
    expect(withRole([ada], { userId: "https://i#new", role: "member", by: "admin" })).toEqual({
      members: [ada, { userId: "https://i#new", role: "member" }],
    })
  })

  it.each<[string, Members, Parameters<typeof withRole>[1], string]>([
    [
      "an admin makes a member an owner",
      [ada, bob],
      { userId: bob.userId, role: "owner", by: "admin" },
      "onlyOwnersGrantOwner",
    ],
    ["an admin makes a stranger an owner", [ada], { userId: "x", role: "owner", by: "admin" }, "onlyOwnersGrantOwner"],
    [
      "an admin demotes an owner",
      [ada, bob],
      { userId: ada.userId, role: "member", by: "admin" },
      "onlyOwnersChangeOwners",
    ],
    ["the last owner leaves", [ada, bob], { userId: ada.userId, role: "admin", by: "owner" }, "lastOwner"],
  ])("rejects the change when %s", (_what, members, change, refusal) => {
    expect(withRole(members, change)).toEqual({ refusal })
  })

  it("keeps at least one owner after any sequence of changes", () => {
    const role = fc.constantFrom<OrganizationRole>(...ORGANIZATION_ROLES)
    const user = fc.constantFrom("a", "b", "c", "d")
    const changes = fc.array(fc.record({ userId: user, role, by: role }), { maxLength: 20 })
    fc.assert(
      fc.property(changes, (all) => {
        let members: Members = [{ userId: "a", role: "owner" }]
        for (const change of all) {
          const outcome = withRole(members, change)
          if ("members" in outcome) members = outcome.members
          expect(members.some((member) => member.role === "owner")).toBe(true)
          expect(new Set(members.map(({ userId }) => userId)).size).toBe(members.length)
        }
      }),
    )
  })
})
