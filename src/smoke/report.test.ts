import { describe, expect, test } from "vitest"
import { smokeJobs } from "./jobs.ts"
import {
  highestCostUsd,
  renderReport,
  type SmokeLaunch,
  type SmokePlan,
  type SmokeRecord,
  type SmokeResult,
} from "./report.ts"

const PLAN: SmokePlan = {
  verdict: "placeable",
  message: "cheapest of 3 offers",
  placements: [
    { instance_type: "m7i.large", region: "eu-central-1", provisioning: "onDemand", hourly_price_usd: 0.12 },
  ],
}
const RECORD: SmokeRecord = {
  name: "smoke-aws-cpu-1",
  status: "succeeded",
  vm_status: "terminated",
  selected_instance_type: "m7i.large",
  selected_region: "eu-central-1",
  vm_instance_id: "i-1",
  actual_cost: 0.0021,
  created_at: "2026-11-23T10:00:00Z",
  started_at: "2026-11-23T10:01:05Z",
  ended_at: "2026-11-23T10:01:10Z",
  reason: null,
  message: null,
  exit_code: 0,
}
const LAUNCH: SmokeLaunch = {
  number: 1,
  phase: "terminated",
  region: "eu-central-1",
  zone: null,
  instance_type: "m7i.large",
  provisioning: "spot",
  vm_instance_id: "i-1",
  vm_status: "terminated",
  refusal: null,
  boot_failure: null,
  loss: null,
}
const report = (...results: SmokeResult[]) => renderReport({ berth: "0.1.0", cloud: "aws", connections: [], results })

describe("the jobs of a smoke test", () => {
  const choice = { cloud: "aws", image: "ubuntu:24.04", minutes: 10 }

  test("leave out the bucket without a bucket's name", () => {
    expect(smokeJobs(["cpu", "bucket"], choice).map(({ kind }) => kind)).toEqual(["cpu"])
    expect(smokeJobs(["bucket"], { ...choice, bucket: "data" })[0]?.body["volumes"]).toEqual({
      smoke: { bucket: "data", mountPath: "/data", prefix: "berth-smoke" },
    })
  })

  test("end by themselves, and are never repeated", () => {
    for (const { body } of smokeJobs(["cpu", "spot", "gpu"], choice))
      expect(body).toMatchObject({ timeoutSeconds: 600, maxRetries: 0, cloud: ["aws"] })
  })
})

describe("the report of a smoke test", () => {
  test("has the machine, the times and the cost of each job", () => {
    const text = report({ kind: "cpu", plan: PLAN, record: RECORD })
    expect(text).toContain("| cpu | passed | m7i.large | eu-central-1 | 65 | 70 | $0.0021 |")
    expect(text).toContain("No VM is left.")
  })

  test("explains each job that did not pass", () => {
    const text = report(
      { kind: "cpu", plan: { ...PLAN, verdict: "waits", message: "no connection is Ready" } },
      {
        kind: "gpu",
        plan: PLAN,
        record: { ...RECORD, status: "failed", reason: "BootFailed", message: "no driver" },
        log: "x",
      },
      { kind: "spot", plan: PLAN, problem: "POST /jobs: 503 try again" },
    )
    expect(text).toContain("**cpu**: no connection is Ready")
    expect(text).toContain("**gpu** (exit code 0): BootFailed: no driver\n\n```\nx\n```")
    expect(text).toContain("**spot**: POST /jobs: 503 try again")
  })

  test("has the cause of a job that waited in vain, and each attempt in the cloud's words", () => {
    const refusal = { reason: "Account", message: "RunInstances: not eligible for Free Tier" }
    const refused = { ...LAUNCH, phase: "refused", vm_instance_id: null, vm_status: null, refusal }
    const text = report({
      kind: "cpu",
      plan: PLAN,
      record: { ...RECORD, status: "cancelled", vm_status: "nonassigned", exit_code: null, message: "cancelled" },
      waiting: "NoCapacity: all 3 matching offers are in cooldown",
      launches: [refused, { ...LAUNCH, number: 2, boot_failure: { reason: "GPUUnavailable", message: "no GPU" } }],
    })
    expect(text).toContain("**cpu**: NoCapacity: all 3 matching offers are in cooldown")
    expect(text).toContain("- launch 1: m7i.large in eu-central-1, spot, refused: Account: RunInstances: not eligible")
    expect(text).toContain("- launch 2: m7i.large in eu-central-1, spot, terminated: GPUUnavailable: no GPU")
    expect(text).toContain("No VM is left.")
  })

  test("names each VM that may be left, also of an earlier launch", () => {
    const launches = [{ ...LAUNCH, vm_instance_id: "i-0", vm_status: "running" }, LAUNCH]
    const earlier = report({ kind: "cpu", plan: PLAN, record: RECORD, launches })
    expect(earlier).toMatch(/VMs that may be left.*: i-0 in eu-central-1\./)
    expect(earlier).not.toContain("| passed |")

    const text = report({ kind: "cpu", plan: PLAN, record: { ...RECORD, vm_status: "running" } })
    expect(text).toMatch(/VMs that may be left.*i-1 in eu-central-1/)
    expect(text).toContain("| cpu | **succeeded** |")
  })
})

test("the highest cost counts the whole limit of each machine", () => {
  expect(highestCostUsd([PLAN, { ...PLAN, placements: [] }], 30)).toBeCloseTo(0.06)
})
