import { readFileSync } from "node:fs"
import { readdir } from "node:fs/promises"
import { createRequire } from "node:module"
import { join } from "node:path"
import { fromJson } from "@bufbuild/protobuf"
import { createValidator } from "@bufbuild/protovalidate"
import { describe, expect, test } from "vitest"
import { goldenRequests, machinesPage, PAGE } from "../../scripts/machines-page.ts"
import { type Json, methodOf, registry } from "../../src/clouds/nebius/api.ts"
import { objectFaults } from "./arm-description.ts"
import { matchRequest, requestFaults } from "./gce-description.ts"

const ROOT = join(import.meta.dirname, "..", "..")
const all = goldenRequests()

describe("the launch request", () => {
  test.each(all)("is as in the golden file: $file", async ({ offer, image, request, file }) => {
    const { hourlyPriceUsd: _, ...machine } = offer
    const text = `${JSON.stringify({ machine, image, request }, withoutUserData, 2)}\n`
    await expect(text).toMatchFileSnapshot(join(ROOT, file))
  })

  test("has no golden file of a family that no longer exists", async () => {
    const files = await readdir(join(ROOT, "test/cloud/golden"), { recursive: true })
    const golden = files.filter((file) => file.endsWith(".json")).map((file) => `test/cloud/golden/${file}`)
    expect(golden.sort()).toEqual(all.map(({ file }) => file).sort())
  })

  test.each(all.filter(({ cloud }) => cloud === "gcp"))("is described by Compute Engine: $file", ({ request }) => {
    const insert = matchRequest("POST", "/compute/v1/projects/p/zones/z/instances")
    if (insert === undefined) throw new Error("the description has no Instances.Insert")
    expect(requestFaults(insert, new URLSearchParams(), request)).toEqual([])
  })

  test.each(all.filter(({ cloud }) => cloud === "nebius"))(
    "is described by Nebius, and powers off for good: $file",
    ({ request }) => {
      const { input } = methodOf("compute.v1.InstanceService/Create")
      const message = fromJson(input, request as Json, { registry: registry() })
      expect(createValidator({ registry: registry() }).validate(input, message)).toMatchObject({ kind: "valid" })
      expect(request).toMatchObject({ spec: { recoveryPolicy: "FAIL" } })
    },
  )

  test.each(all.filter(({ cloud }) => cloud === "azure"))("is described by Azure's SDK: $file", ({ request }) => {
    expect(objectFaults("virtualMachine", request)).toEqual([])
    expect(choiceFaults(request)).toEqual([])
  })
})

/** Azure's user data is long. test/agent/golden has that of each system. */
function withoutUserData(name: string, value: unknown): unknown {
  return name === "customData" ? "user data" : value
}

/** Fields with a fixed choice of strings, by the SDK's list of their values. */
const CHOICES: Record<string, string> = {
  priority: "KnownVirtualMachinePriorityTypes",
  evictionPolicy: "KnownVirtualMachineEvictionPolicyTypes",
  createOption: "KnownDiskCreateOptionTypes",
  storageAccountType: "KnownStorageAccountTypes",
  diskControllerType: "KnownDiskControllerTypes",
  securityType: "KnownSecurityTypes",
  publicIPAllocationMethod: "KnownPublicIPAllocationMethod",
}

/** Returns the fields whose value is none of the SDK's list. */
function choiceFaults(value: unknown): string[] {
  if (typeof value !== "object" || value === null) return []
  const sdk = createRequire(import.meta.url)("@azure/arm-compute") as Record<string, Record<string, string> | undefined>
  return Object.entries(value).flatMap(([name, part]) => {
    const choice = CHOICES[name]
    const values = choice === undefined ? undefined : Object.values(sdk[choice] ?? {})
    const fault =
      values !== undefined && !values.includes(String(part)) ? [`${name}: ${part} is none of ${values}`] : []
    return [...fault, ...choiceFaults(part)]
  })
}

test("docs/machines.md is current; to update it, run scripts/machines-page.ts", () => {
  expect(readFileSync(PAGE, "utf8")).toBe(machinesPage())
})
