import { describe, expect, test } from "vitest"
import type { JobSpec } from "../../src/core/apis/job.ts"
import { toMetadataName } from "../../src/core/apis/names.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import { createCatalogue } from "../../src/market/router/catalogue.ts"
import type { Cooldown } from "../../src/market/router/cooldown.ts"
import { explainChoice, explainRanking, explainShortfall } from "../../src/market/router/explain.ts"
import { toRequirements } from "../../src/market/router/requirements.ts"
import { type RouteContext, route } from "../../src/market/router/route.ts"

const GROUPS: Record<string, string[]> = {
  "eu-west-1": ["eu"],
  "us-east-1": ["us"],
  "us-central1": ["us"],
  "me-1": ["me"],
}

function offer(changes: Partial<Offer>): Offer {
  return {
    cloud: "aws",
    region: "eu-west-1",
    instanceType: "m7i.large",
    architecture: "amd64",
    provisioning: "onDemand",
    cpu: 2,
    memoryGib: 8,
    hourlyPriceUsd: 0.1,
    minimumBilledSeconds: 60,
    ...changes,
  }
}

const h100 = { model: "H100", vramGib: 80 }
const OFFERS = [
  offer({}),
  offer({ provisioning: "spot", hourlyPriceUsd: 0.04 }),
  offer({ instanceType: "c7g.4xlarge", architecture: "arm64", cpu: 16, memoryGib: 32, hourlyPriceUsd: 0.62 }),
  offer({ region: "us-east-1", hourlyPriceUsd: 0.096 }),
  offer({
    region: "us-east-1",
    instanceType: "p5.48xlarge",
    cpu: 192,
    memoryGib: 2048,
    gpu: { ...h100, count: 8 },
    hourlyPriceUsd: 55.04,
  }),
  offer({
    cloud: "gcp",
    region: "us-central1",
    instanceType: "a3-highgpu-4g",
    cpu: 104,
    memoryGib: 936,
    gpu: { ...h100, count: 4 },
    hourlyPriceUsd: 39.2,
  }),
  offer({
    instanceType: "g6.12xlarge",
    cpu: 48,
    memoryGib: 192,
    gpu: { model: "L4", count: 4, vramGib: 24 },
    hourlyPriceUsd: 4.6,
  }),
]
const catalogue = createCatalogue(OFFERS, (_, region) => GROUPS[region] ?? [])

const CONTEXT: RouteContext = {
  launchAccounts: [{ cloud: "aws", connection: toMetadataName("Main_") ?? "" }, { cloud: "gcp" }],
  cooldowns: [],
  room: {},
  expectedSeconds: 7200,
  now: new Date("2026-05-01T12:00:00Z"),
}

/** Returns the explanation of a job's placement, or of the lack of one. */
function explain(spec: Omit<JobSpec, "image">, among = catalogue): string {
  const requirements = toRequirements({ image: "busybox", ...spec })
  const routing = route(requirements, among, CONTEXT)
  if (routing.shortfall !== undefined) return explainShortfall(routing.shortfall, requirements)
  return explainChoice(routing, ["aws", "gcp"])
}

describe("the explanation of a placement", () => {
  test("compares the cheapest offer with the next one", () => {
    expect(explain({ region: ["eu"] })).toBe(
      "cheapest of 3 matching offers on aws or gcp, out of 7 in the catalogue; the next, aws c7g.4xlarge in eu-west-1, costs $1.24 in total",
    )
    const routing = route(toRequirements({ image: "busybox", region: ["eu"] }), catalogue, CONTEXT)
    expect(explainRanking(routing)).toEqual([
      "aws m7i.large in eu-west-1 (on demand, 2 vCPU, 8 GiB, $0.1/h) by connection Main_: $0.2 in total",
      "aws c7g.4xlarge in eu-west-1 (on demand, 16 vCPU, 32 GiB, $0.62/h) by connection Main_: $1.24 in total, 520 % more",
      "aws g6.12xlarge in eu-west-1 (on demand, 48 vCPU, 192 GiB, 4 × L4, $4.6/h) by connection Main_: $9.2 in total, 4500 % more",
    ])
  })

  test("states that spot is preferred, or that the offer is the only one", () => {
    expect(explain({ provisioning: "spotFirst", region: ["eu"] })).toBe(
      "cheapest of 4 matching offers on aws or gcp, out of 7 in the catalogue; spot is preferred; on demand, aws m7i.large in eu-west-1 costs $0.2 in total",
    )
    expect(explain({ provisioning: "spot" })).toBe("the only matching offer on aws or gcp, out of 7 in the catalogue")
  })

  test("counts the offers before it that are in cooldown, with the causes and the first end", () => {
    const at = (minutes: number) => new Date(CONTEXT.now.getTime() + minutes * 60_000)
    const requirements = toRequirements({ image: "busybox", provisioning: "spotFirst", region: ["eu"] })
    const capacity = { group: "aws rejected 1 launch for lack of capacity" }
    const refused = { group: "aws rejected 3 launches of connection main", detail: "Bad: no", remedy: "do it" }
    const rest = (changes: Partial<Cooldown>): Cooldown => ({ cloud: "aws", until: at(9), ...changes })
    const cooldowns = [
      rest({ provisioning: "spot", until: at(5), cause: capacity }),
      rest({ instanceType: "m7i.large", cause: refused }),
      // It costs more than what is chosen.
      rest({ instanceType: "g6.12xlarge", until: at(1), cause: capacity }),
      // It has ended.
      rest({ until: at(0), cause: capacity }),
    ]
    const routing = route(requirements, catalogue, { ...CONTEXT, cooldowns })
    expect(explainChoice(routing, ["aws", "gcp"])).toBe(
      "cheapest available of 4 matching offers on aws or gcp, out of 7 in the catalogue; 2 that rank before it are in " +
        "cooldown, the first until 2026-05-01T12:09:00Z: aws rejected 3 launches of connection main; no other is available now",
    )
    const one = { ...CONTEXT, cooldowns: [cooldowns[1] as Cooldown] }
    expect(explainChoice(route(toRequirements({ image: "busybox", region: ["eu"] }), catalogue, one), ["aws"])).toMatch(
      /^cheapest available of 3 .*; 1 that ranks before it is in cooldown until 2026-05-01T12:09:00Z: aws rejected 3/,
    )
  })

  test("states that no other offer is available now", () => {
    const requirements = toRequirements({ image: "busybox", region: ["eu"] })
    const routing = route(requirements, catalogue, { ...CONTEXT, count: 1 })
    expect(explainChoice(routing, ["aws", "gcp"])).toBe(
      "cheapest of 3 matching offers on aws or gcp, out of 7 in the catalogue; no other is available now",
    )
  })
})

describe("the explanation of a missing placement", () => {
  test.each<[string, Omit<JobSpec, "image">, string]>([
    [
      "offers only in other regions, or with other GPUs",
      { region: ["eu"], resources: { gpu: { model: "H100", count: 4 } } },
      "no offer has 4 × H100, ≥ 1 vCPU and ≥ 4 GiB on demand in eu; " +
        "us has 2 offers from $39.2/h (gcp a3-highgpu-4g in us-central1 (on demand, 104 vCPU, 936 GiB, 4 × H100, $39.2/h)); " +
        "with other GPUs there is 1 offer from $4.6/h (aws g6.12xlarge in eu-west-1 (on demand, 48 vCPU, 192 GiB, 4 × L4, $4.6/h)). " +
        "Of all offers gpu H100 excludes 5, gpu.count ≥ 4 excludes 4, region eu excludes 3, provisioning onDemand excludes 1",
    ],
    [
      "a size above the largest offer",
      { resources: { gpu: { vram: "1000Gi" } } },
      "no offer has ≥ 1000 GiB of GPU memory, ≥ 1 vCPU and ≥ 4 GiB on demand; " +
        "there are at most 640 GiB of GPU memory, in 1 offer from $55.04/h " +
        "(aws p5.48xlarge in us-east-1 (on demand, 192 vCPU, 2048 GiB, 8 × H100, $55.04/h)). " +
        "Of all offers gpu.vram ≥ 1000 GiB excludes 7, gpu of NVIDIA excludes 4, provisioning onDemand excludes 1",
    ],
    [
      "limits of price, cloud and provisioning",
      { cloud: ["aws"], resources: { cpu: 8 }, provisioning: "spot", maxHourlyPriceUsd: 1 },
      "no offer has ≥ 8 vCPU and ≥ 4 GiB spot of aws for at most $1/h; " +
        "on demand there is 1 offer from $0.62/h (aws c7g.4xlarge in eu-west-1 (on demand, 16 vCPU, 32 GiB, $0.62/h)); " +
        "there are at most 2 vCPU, in 1 offer from $0.04/h (aws m7i.large in eu-west-1 (spot, 2 vCPU, 8 GiB, $0.04/h)). " +
        "Of all offers provisioning spot excludes 6, cpu ≥ 8 excludes 3, maxHourlyPriceUsd ≤ $1 excludes 3, cloud aws excludes 1",
    ],
    [
      "no offer after any single change",
      { region: ["me"], provisioning: "spot", resources: { gpu: { model: "H100" } } },
      "no offer has 1 × H100, ≥ 1 vCPU and ≥ 4 GiB spot in me; " +
        "the nearest is gcp a3-highgpu-4g in us-central1 (on demand, 104 vCPU, 936 GiB, 4 × H100, $39.2/h), " +
        "except for region me and provisioning spot. Of all offers region me excludes 7, provisioning spot excludes 6, " +
        "gpu H100 excludes 5, gpu.count ≥ 1 excludes 4",
    ],
  ])("explains: %s", (_, spec, message) => {
    expect(explain(spec)).toBe(message)
  })

  test("counts the memory that a container gets", () => {
    expect(explain({ resources: { memory: "8Gi" } }, createCatalogue([offer({})]))).toContain(
      "no offer has ≥ 1 vCPU and ≥ 8 GiB on demand; there are at most 7.5 GiB of memory for a container, in 1 offer from",
    )
  })

  test("counts every offer of the largest size, at any price", () => {
    const same = createCatalogue([
      offer({}),
      offer({ region: "us-east-1", hourlyPriceUsd: 0.2 }),
      offer({ instanceType: "tiny", cpu: 1 }),
    ])
    expect(explain({ resources: { cpu: 4 } }, same)).toContain(
      "there are at most 2 vCPU, in 2 offers from $0.1/h (aws m7i.large in eu-west-1",
    )
  })

  test("shows differences from a price of 0 in dollars", () => {
    const free = createCatalogue([offer({ hourlyPriceUsd: 0 }), offer({ instanceType: "m8i.large" })])
    const { placements } = route(toRequirements({ image: "x" }), free, CONTEXT)
    expect(explainRanking({ placements }).map((line) => line.split(": ")[1])).toEqual([
      "$0 in total",
      "$0.2 in total, $0.2 more",
    ])
  })
})
