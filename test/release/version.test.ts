import { describe, expect, it } from "vitest"
import { fluxRange, isReplacedBy, parseVersion, pythonVersion } from "../../scripts/version.ts"

describe("a version", () => {
  it("is a candidate of its release by a hyphen, and has the same neighbours", () => {
    expect(parseVersion("0.2.0")).toEqual({ release: "0.2.0", minor: "0.2", candidate: undefined })
    expect(parseVersion("0.2.0-rc.1")).toEqual({ release: "0.2.0", minor: "0.2", candidate: "1" })
    expect(parseVersion("10.20.30-rc.12")).toEqual({ release: "10.20.30", minor: "10.20", candidate: "12" })
  })

  it.each(["0.2", "v0.2.0", "0.2.0-rc", "0.2.0-rc1", "0.2.0-rc.0", "0.2.0-beta.1", "0.2.0+1", "0.2.0rc1", ""])(
    "is none of the form %j",
    (text) => expect(() => parseVersion(text)).toThrow(`the version ${text} is neither like 0.2.0 nor`),
  )

  it("has Python's own spelling", () => {
    expect(["0.2.0", "0.2.0-rc.1", "0.2.0-rc.12"].map(pythonVersion)).toEqual(["0.2.0", "0.2.0rc1", "0.2.0rc12"])
  })

  it("is in a range of Flux that takes candidates only if it is one", () => {
    expect(["0.2.0", "0.2.3", "0.2.0-rc.1"].map(fluxRange)).toEqual(["0.2.x", "0.2.x", "~0.2.0-0"])
  })

  it("replaces the records of candidates of the same release only", () => {
    const recorded = ["0.1.0", "0.2.0-rc.1", "0.2.0-rc.2", "0.2.1-rc.1", "record.ts"]
    const replacedBy = (version: string) => recorded.filter((one) => isReplacedBy(one, version))
    expect(replacedBy("0.2.0-rc.1")).toEqual(["0.2.0-rc.2"])
    expect(replacedBy("0.2.0-rc.3")).toEqual(["0.2.0-rc.1", "0.2.0-rc.2"])
    expect(replacedBy("0.2.0")).toEqual(["0.2.0-rc.1", "0.2.0-rc.2"])
    expect(replacedBy("0.3.0")).toEqual([])
  })
})
