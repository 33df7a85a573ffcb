import fc from "fast-check"
import type { JWTPayload } from "jose"
import { describe, expect, it } from "vitest"
import { groupsIn, groupsWarning, groupsWithoutRole } from "./group-claim.ts"

const SOURCE = { _claim_sources: { src1: { endpoint: "https://graph.example/me/getMemberObjects" } } }

describe("the groups of a token", () => {
  it.each<[string, JWTPayload, string, string[], string | undefined, string]>([
    ["a list", { groups: ["a", "b"] }, "groups", ["a", "b"], undefined, "names 2 groups"],
    ["one name", { groups: "a" }, "groups", ["a"], undefined, "names one group"],
    [
      "an overage of Entra ID",
      { _claim_names: { groups: "src1" }, ...SOURCE },
      "groups",
      [],
      "GroupsOmitted",
      "_claim_names",
    ],
    ["an overage of the implicit flow", { hasgroups: true }, "groups", [], "GroupsOmitted", "hasgroups"],
    ["an overage with an empty list", { hasgroups: "true", groups: [] }, "groups", [], "GroupsOmitted", "hasgroups"],
    [
      "a part of the groups",
      { groups: ["a"], _claim_names: { groups: "s" } },
      "groups",
      ["a"],
      "GroupsOmitted",
      "only some",
    ],
    [
      "an overage of another claim",
      { roles: ["a"], _claim_names: { groups: "s" } },
      "roles",
      ["a"],
      undefined,
      "one group",
    ],
    ["no overage", { hasgroups: false, _claim_names: {} }, "groups", [], "GroupsMissing", 'no claim "groups"'],
    ["no claim", {}, "team", [], "GroupsMissing", 'no claim "team"'],
    ["null", { groups: null }, "groups", [], "GroupsMissing", 'no claim "groups"'],
    ["an empty list", { groups: [] }, "groups", [], "GroupsEmpty", "is an empty list"],
    ["numbers", { groups: [1, 2] }, "groups", [], "GroupsNotNames", "ignores 2 of the 2 groups"],
    ["a number", { groups: 7 }, "groups", [], "GroupsNotAList", "is a number"],
    ["some that are not names", { groups: ["a", { id: "b" }] }, "groups", ["a"], "GroupsNotNames", "1 of the 2 groups"],
    ["an object", { realm_access: { roles: ["a"] } }, "realm_access", [], "GroupsNotAList", "is an object"],
    [
      "a nested claim",
      { realm_access: { roles: ["a"] } },
      "realm_access.roles",
      [],
      "GroupsNested",
      "within another claim",
    ],
    [
      "a name with dots",
      { "https://a.example/groups": ["a"] },
      "https://a.example/groups",
      ["a"],
      undefined,
      "one group",
    ],
    ["no claim of a name with dots", {}, "https://a.example/groups", [], "GroupsMissing", "no claim"],
  ])("are found, or missing for a reason: %s", (_what, claims, claim, names, reason, words) => {
    const found = groupsIn(claims, claim)
    expect([found.names, found.trouble?.reason]).toEqual([names, reason])
    const person = { groups: found.names, ...(found.trouble && { groupsTrouble: found.trouble }) }
    expect(groupsWithoutRole(person)).toContain(words)
    const isQuiet = reason === undefined || reason === "GroupsMissing" || reason === "GroupsEmpty"
    expect(groupsWarning(person)).toEqual(isQuiet ? undefined : groupsWithoutRole(person))
  })

  it("are all named, or a sentence says why not, without a value of the token", () => {
    const SECRET = "value-of-the-token"
    const leaf = fc.constantFrom<unknown>(SECRET, "", 1, true, null, { [SECRET]: SECRET }, [SECRET])
    const value = fc.oneof(leaf, fc.array(leaf), fc.dictionary(fc.constantFrom("a", "b"), leaf))
    const claims = fc.record(
      { groups: value, hasgroups: value, _claim_names: fc.oneof(value, fc.constant({ groups: SECRET })) },
      { requiredKeys: [] },
    )
    fc.assert(
      fc.property(claims, (given) => {
        const { names, trouble } = groupsIn(given, "groups")
        const listed = [given.groups].flat()
        const isWhole = listed.length > 0 && listed.every((name) => typeof name === "string" && name !== "")
        expect(names).toEqual(listed.filter((name) => typeof name === "string" && name !== ""))
        if (!isWhole) expect(trouble).toBeDefined()
        if (trouble === undefined) return
        expect(trouble.message).not.toContain(SECRET)
        for (const sentence of trouble.message.split(/(?<=[.:]) /)) expect(sentence.split(" ").length).toBeLessThan(21)
      }),
    )
  })
})
