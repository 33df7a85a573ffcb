// Writes Berth's choices for typical jobs into docs/routing.md, from the shipped price list:
// `scripts/routing-table.ts`. A test checks that the page is current.
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { MACHINES } from "../src/clouds/machines/machines.ts"
import type { JobSpec } from "../src/core/apis/job.ts"
import { sumOfParts } from "../src/core/apis/price.ts"
import { buildOffers } from "../src/market/catalogue/file.ts"
import { partPrices } from "../src/market/catalogue/parts.ts"
import { readPriceList } from "../src/market/catalogue/shipped.ts"
import { Catalogue } from "../src/market/router/catalogue.ts"
import { toRequirements } from "../src/market/router/requirements.ts"
import { rankPlacements } from "../src/market/router/route.ts"

const PAGE = join(import.meta.dirname, "..", "docs", "routing.md")

const JOBS: readonly [name: string, spec: Omit<JobSpec, "image">][] = [
  ["small: nothing asked (1 vCPU, 4Gi)", {}],
  ["small, spot", { provisioning: "spot" }],
  ["build: 16 vCPU, 32Gi", { resources: { cpu: 16, memory: "32Gi" } }],
  ["memory-heavy: 8 vCPU, 256Gi", { resources: { cpu: 8, memory: "256Gi" } }],
  ["any GPU with 16Gi", { resources: { gpu: { vram: "16Gi" } } }],
  ["1 × T4", { resources: { cpu: 4, memory: "16Gi", gpu: { model: "T4" } } }],
  ["1 × L4", { resources: { cpu: 4, memory: "16Gi", gpu: { model: "L4" } } }],
  ["1 × A100 of 80 GB", { resources: { cpu: 8, memory: "64Gi", gpu: { model: "a100-80gb" } } }],
  ["8 × H100", { resources: { cpu: 64, memory: "512Gi", gpu: { model: "H100", count: 8 } } }],
  [
    "8 × H100, spot",
    { provisioning: "spot", resources: { cpu: 64, memory: "512Gi", gpu: { model: "H100", count: 8 } } },
  ],
]

/** Region of the typical jobs. */
const REGION = "us"

/** Returns the generated parts of the page, by the name of their marker. */
export function generatedParts(): Record<string, string> {
  const list = readPriceList()
  const catalogue = new Catalogue(buildOffers(list), partPrices())
  const days = list.sources.flatMap(({ date, covers }) => (covers === undefined ? [] : date)).toSorted()
  const [first, last] = [days[0], days.at(-1)]
  return {
    jobs: jobsTable(catalogue),
    sources: [
      "| cloud | what | source | date | licence |",
      "|---|---|---|---|---|",
      ...list.sources.map(
        ({ cloud, what, name, date, licence }) => `| ${cloud} | ${what} | ${name} | ${date} | ${licence} |`,
      ),
    ].join("\n"),
    unlaunchable: [
      "| cloud | machine types | where | bought | why |",
      "|---|---|---|---|---|",
      ...Object.entries(MACHINES).flatMap(([cloud, { exclusions }]) =>
        exclusions.map(({ types, regions, provisioning, reason, source }) => {
          const where = regions === undefined ? "everywhere" : code(regions)
          return `| ${[cloud, code(types), where, provisioning ?? "in any way", `[${reason}](${source})`].join(" | ")} |`
        }),
      ),
    ].join("\n"),
    counts: `${number(catalogue.size)} offers of ${number(list.machines.length)} machine types in ${list.regions.length} regions, with prices of ${first} to ${last}; ${list.suspects.length} prices are flagged as suspect.`,
  }
}

function jobsTable(catalogue: Catalogue): string {
  const rows = JOBS.map(([name, spec]) => {
    const requirements = toRequirements({ image: "busybox", ...spec, region: [REGION] })
    const [best, next] = rankPlacements(requirements, catalogue, {
      launchAccounts: catalogue.clouds.map((cloud) => ({ cloud })),
      cooldowns: [],
      room: {},
      expectedSeconds: 3600,
      now: new Date(0),
      count: 2,
    })
    if (best === undefined) return `| ${name} | nothing fits | | | | |`
    const { cloud, instanceType, region, cpu, memoryGib, gpu, hourlyPriceUsd } = best.offer
    const totalUsd = sumOfParts(best.prices)
    const cards = gpu === undefined ? "" : `, ${gpu.count} × ${gpu.model}`
    const size = `${cpu} vCPU, ${memoryGib} GiB${cards}`
    const second =
      next === undefined
        ? ""
        : `${next.offer.cloud} \`${next.offer.instanceType}\` in ${next.offer.region}, ${sumOfParts(next.prices)}`
    return `| ${name} | ${cloud} \`${instanceType}\` in ${region} | ${size} | ${hourlyPriceUsd} | ${totalUsd} | ${second} |`
  })
  return [
    "| job | Berth picks | size | machine, USD/h | with disk and address | next best |",
    "|---|---|---|---|---|---|",
    ...rows,
  ].join("\n")
}

function code(pattern: RegExp): string {
  return `\`${pattern.source.replaceAll("|", "\\|")}\``
}

function number(value: number): string {
  return value.toLocaleString("en-US")
}

/** Returns the page with current generated parts. @throws Error if a marker is missing */
export function currentPage(page: string = readFileSync(PAGE, "utf8")): string {
  return Object.entries(generatedParts()).reduce((text, [name, part]) => {
    const [begin, end] = [`<!-- ${name}: generated -->`, `<!-- /${name} -->`]
    const [from, to] = [text.indexOf(begin), text.indexOf(end)]
    if (from < 0 || to < from) throw new Error(`docs/routing.md has no part between ${begin} and ${end}`)
    return `${text.slice(0, from + begin.length)}\n${part}\n${text.slice(to)}`
  }, page)
}

if (import.meta.main) writeFileSync(PAGE, currentPage())
