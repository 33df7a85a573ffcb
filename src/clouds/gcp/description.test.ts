import { createRequire } from "node:module"
import { protobuf } from "google-gax"
import { describe, expect, it } from "vitest"
import { SERVICES } from "./compute.ts"
import { selectServices } from "./description.ts"

const WHOLE: protobuf.INamespace = createRequire(import.meta.url)("@google-cloud/compute/build/protos/protos.json")

describe("the part of an API description", () => {
  const part = selectServices(WHOLE, SERVICES)

  it("has every message that the services use, and is a tenth of the whole", () => {
    const root = protobuf.Root.fromJSON(part)
    // Throws if a message is missing.
    root.resolveAll()
    for (const service of SERVICES) {
      const { methods } = root.lookupService(`google.cloud.compute.v1.${service}`)
      expect(Object.keys(methods).length).toBeGreaterThan(0)
    }
    expect(JSON.stringify(part).length).toBeLessThan(JSON.stringify(WHOLE).length / 10)
  })

  it("is the whole description if that lacks a service", () => {
    expect(selectServices(WHOLE, ["Instances", "Renamed"])).toBe(WHOLE)
    expect(selectServices({ nested: {} }, SERVICES)).toEqual({ nested: {} })
  })
})
