import { describe, expect, test } from "vitest"
import { orderedDisk } from "../../core/apis/disk.ts"
import { chooseBootDisk } from "./disk.ts"
import { type CloudMachines, findFamily } from "./family.ts"
import { bootDeadlineOf, findExclusion, LONGEST_BOOT_SECONDS, MACHINES, quotaOf } from "./machines.ts"

const clouds: [string, CloudMachines][] = Object.entries(MACHINES)

describe("the tables of machines", () => {
  test.each(clouds)("name an image for each family of %s, and a source for each fact", (_, table) => {
    const { images, families, exclusions, burstable, diskPerformance } = table
    for (const { name, image, gpu } of families) {
      expect(images[image], name).toBeDefined()
      expect(images[image]?.driver === undefined, name).toBe(gpu === undefined)
    }
    const performances = Object.values(diskPerformance)
    for (const { source } of [...families, ...exclusions, ...burstable, ...performances, ...Object.values(images)])
      expect(source).toMatch(/^https:\/\//)
    for (const { seconds, source } of Object.values(table.bootDeadlines)) {
      expect(source).toMatch(/^https:\/\//)
      expect(seconds).toBeLessThanOrEqual(LONGEST_BOOT_SECONDS)
    }
    for (const { leastDiskGib } of Object.values(images)) expect(leastDiskGib).toBeLessThanOrEqual(table.diskGib.gpu)
  })

  test.each(clouds)("list each family of %s once", (_, { families }) => {
    expect(new Set(families.map(({ name }) => name)).size).toBe(families.length)
  })

  test("yield to an installation's own description of a machine", () => {
    const own = { instanceType: "g2-standard-4", architecture: "amd64" as const }
    expect(findFamily(MACHINES["gcp"] as CloudMachines, own)).toBeUndefined()
  })
})

describe("exclusions", () => {
  const here = { region: "r", provisioning: "onDemand" as const }
  test.each([
    ["azure", "Standard_NV6ads_A10_v5", /GRID/],
    ["azure", "Standard_NV36adms_A10_v5", /GRID/],
    ["azure", "Standard_NC8ads_A10_v4", /GRID/],
    ["azure", "Standard_ND128isr_NDR_GB200_v6", /Arm/],
    ["azure", "Standard_NCC40ads_H100_v5", /confidential/],
    ["azure", "Standard_DC2as_v5", /confidential/],
    ["azure", "Standard_DC4ads_cc_v5", /confidential/],
    ["azure", "Standard_EC96iads_v5", /confidential/],
    ["azure", "Standard_EC2eds_v6", /confidential/],
    ["azure", "Standard_DC2s_v3", undefined],
    ["azure", "Standard_DC1ds_v3", undefined],
    ["azure", "Standard_ND40rs_v2", undefined],
    ["azure", "Standard_ND96isr_MI300X_v5", undefined],
    ["azure", "Standard_PB6s", /PB/],
    ["gcp", "n1-standard-2_1xnvidia-tesla-p4", /proprietary/],
    ["gcp", "n1-standard-2_4xnvidia-tesla-p100", /proprietary/],
    ["gcp", "n1-standard-8_8xnvidia-tesla-v100", /proprietary/],
    ["gcp", "n1-standard-4_1xnvidia-tesla-t4", undefined],
    ["gcp", "g4-standard-24", /vGPU/],
    ["gcp", "c4-standard-288-lssd-metal", /bare metal/],
    ["gcp", "g4-standard-48", undefined],
    ["aws", "g6f.large", undefined],
    ["aws", "inf2.xlarge", undefined],
    ["aws", "t4g.nano", /launch credits/],
    ["aws", "t2.nano", undefined],
    ["aws", "p3dn.24xlarge", undefined],
  ])("decide on %s %s", (cloud, instanceType, reason) => {
    const why = findExclusion(cloud, instanceType, here)?.reason
    if (reason === undefined) expect(why).toBeUndefined()
    else expect(why).toMatch(reason)
  })
})

describe("the boot disk", () => {
  const cpu = { leastGib: 50, imageGib: 30, performance: {} }
  const gpu = { leastGib: 200, imageGib: 64, performance: {} }
  test.each([
    ["the default of the machine", gpu, {}, 200],
    ["the image's size, if it is larger", { ...cpu, imageGib: 64 }, {}, 64],
    ["the size of the connection, also below the default", gpu, { sizeGib: 100 }, 100],
    ["never less than the image", gpu, { sizeGib: 20 }, 64],
    ["at least the size that the job requires", cpu, { sizeGib: 40, requiredGib: 300 }, 300],
    ["at least the default, if the job requires less", cpu, { requiredGib: 10 }, 50],
  ])("has %s", (_, sizes, disk, size) => {
    expect(orderedDisk({ ...sizes, types: ["gp3"] }, disk).sizeGib).toBe(size)
  })

  test.each([
    ["aws", "m7g.large", "gp2", "gp2"],
    ["gcp", "e2-standard-2", "pd-ssd", "pd-ssd"],
    ["gcp", "n4-standard-2", "pd-ssd", "hyperdisk-balanced"],
    ["gcp", "h3-standard-88", "pd-ssd", "pd-balanced"],
    ["azure", "Standard_D4s_v3", "Premium_LRS", "Premium_LRS"],
    ["azure", "Standard_D4_v3", "Premium_LRS", "StandardSSD_LRS"],
    ["azure", "Standard_D4_v3", "Standard_LRS", "Standard_LRS"],
  ])("has for %s %s with the type %s the type %s", (cloud, instanceType, type, expected) => {
    const architecture = instanceType === "m7g.large" ? "arm64" : "amd64"
    const boot = chooseBootDisk({ cloud, instanceType, architecture })
    expect(boot && orderedDisk(boot, { type }).type).toBe(expected)
  })

  test("is the host's for a local VM", () => {
    expect(chooseBootDisk({ cloud: "local", instanceType: "local-2", architecture: "amd64" })).toBeUndefined()
  })
})

test("a machine with less than a vCPU may boot longer", () => {
  expect(bootDeadlineOf({ cloud: "aws", cpu: 0.4 })?.seconds).toBe(750)
  expect(bootDeadlineOf({ cloud: "aws", cpu: 0.05 })?.seconds).toBe(LONGEST_BOOT_SECONDS)
})

test.each([
  ["aws", undefined, 300],
  ["azure", undefined, 480],
  ["aws", { model: "L4", count: 0.25 }, 600],
  ["gcp", { model: "A100", count: 4 }, 600],
  ["gcp", { model: "H100", count: 8 }, 900],
  // Accelerators of other makers have no driver to wait for.
  ["azure", { model: "AMD:MI300X", count: 8 }, 480],
  ["local", undefined, undefined],
])("a VM of %s with the GPUs %o may boot for %s s", (cloud, gpu, seconds) => {
  expect(bootDeadlineOf({ cloud, cpu: 4, ...(gpu && { gpu: { ...gpu, vramGib: 24 } }) })?.seconds).toBe(seconds)
})

test.each([
  ["aws", "m7g.large", "Standard (A, C, D, H, I, M, R, T, Z)"],
  ["aws", "g6e.xlarge", "G and VT"],
  ["aws", "p5.48xlarge", "P"],
  ["aws", "u-6tb1.56xlarge", "High Memory"],
  ["aws", "u7i-8tb.112xlarge", "High Memory"],
  ["aws", "x2idn.16xlarge", "X"],
  ["aws", "hpc7a.12xlarge", "HPC"],
  ["gcp", "n1-standard-4_1xnvidia-tesla-t4", "nvidia-tesla-t4"],
  ["gcp", "c4a-standard-1", "c4a"],
  ["gcp", "n1-standard-4", "CPUS"],
  ["azure", "Standard_D16-8as_v5", "Das_v5"],
  ["local", "local-2", "local-2"],
])("the quota of %s %s is %s", (cloud, instanceType, quota) => {
  expect(quotaOf(cloud, instanceType)).toBe(quota)
})
