import fc from "fast-check"
import { describe, expect, test } from "vitest"
import { LIMITS } from "./field-limits.ts"
import { fromMetadataName, isUuid, toMetadataName } from "./names.ts"

const DNS_SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/

const contractName = fc.stringMatching(/^[a-zA-Z0-9][a-zA-Z0-9_-]{2,49}$/)
/** Few letters, so that names which differ by case and dashes only come up often. */
const similarName = fc.stringMatching(/^[aA][aA_-]{0,5}$/)
const metadataName = fc
  .stringMatching(/^[a-z0-9-]{1,12}(\.[uxz][0-9a-z]{1,6})?$/)
  .filter((name) => DNS_SUBDOMAIN.test(name))

describe("names that Kubernetes does not allow", () => {
  test.each([
    ["My_Key", "my-key.ud"],
    ["abc-", "abc-x.x0"],
    ["abc_", "abc-x.x8"],
    ["a--", "a--x.x0"],
    ["UPPER", "upper.uv"],
  ])("%s is stored as %s", (name, stored) => {
    expect(toMetadataName(name)).toBe(stored)
    expect(fromMetadataName(stored)).toBe(name)
  })

  test.each(["a", "nightly-2", "0abc", "abc.def", "my-key.zd", "a.u0"])("%s is its own name", (name) => {
    expect(toMetadataName(name)).toBe(name)
    expect(fromMetadataName(name)).toBe(name)
  })

  test.each([
    "",
    "_a",
    "-a",
    "a b",
    "ä",
    "A.b",
    "a/b",
    "a".repeat(254),
    "A".repeat(254),
    "123e4567-e89b-12d3-a456-426614174000",
    "123E4567-E89B-12D3-A456-426614174000",
  ])("nothing can be named %j", (name) => {
    expect(toMetadataName(name)).toBeUndefined()
  })

  test("the coded form of a name is no name of its own: My_Key has no second one", () => {
    expect(toMetadataName("my-key.ud")).toBeUndefined()
  })

  test("every contract name has a metadata.name of at most 63 characters that reads back", () => {
    fc.assert(
      fc.property(contractName, (name) => {
        fc.pre(!isUuid(name))
        const stored = toMetadataName(name) ?? ""
        expect(stored).toMatch(DNS_SUBDOMAIN)
        expect(stored.length).toBeLessThanOrEqual(63)
        expect(fromMetadataName(stored)).toBe(name)
      }),
      { numRuns: 1000 },
    )
  })

  test("the longest name of a key or connection, all capitals, fits into a label", () => {
    expect(toMetadataName(`${"Z".repeat(49)}_`)).toHaveLength(LIMITS.connectionName)
  })

  test("different names have different metadata.names, also when they differ by case or dashes only", () => {
    fc.assert(
      fc.property(similarName, similarName, (a, b) => {
        fc.pre(a !== b)
        expect(toMetadataName(a)).not.toBe(toMetadataName(b))
      }),
      { numRuns: 2000 },
    )
  })

  test("every metadata.name, of any author, is read as a name that leads back to it", () => {
    fc.assert(
      fc.property(metadataName, (stored) => {
        expect(toMetadataName(fromMetadataName(stored))).toBe(stored)
      }),
      { numRuns: 2000 },
    )
  })
})
