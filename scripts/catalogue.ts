// Builds the price list that Berth ships, from a folder with aws.csv, gcp.csv, azure.csv and regions.csv, and from
// scripts/prices. Run `scripts/catalogue.ts FOLDER`, or `scripts/catalogue.ts FOLDER --check` to compare without writing.
// docs/routing.md names the sources of those files.
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { parseArgs } from "node:util"
import { brotliCompressSync, constants } from "node:zlib"
import { burstableOf } from "../src/clouds/machines/machines.ts"
import { buildOffers, type Coverage, encode, type PriceList, type PriceSource } from "../src/market/catalogue/file.ts"
import { readPriceList, SHIPPED_FILE } from "../src/market/catalogue/shipped.ts"
import { findSuspects } from "../src/market/catalogue/suspects.ts"
import { whyUnlaunchable } from "../src/market/catalogue/unlaunchable.ts"
import type { Machine, Region } from "../src/market/router/table.ts"

const CLOUDS = ["aws", "gcp", "azure", "nebius"] as const
const COLUMNS =
  "provider,region,instance_type,vcpu,memory_gib,arch,gpu_model,gpu_count,gpu_memory_gib,price_usd_hour,spot_usd_hour"
const REGION_COLUMNS = "provider,region,macro_region,location"

/** Prices that are short enough to be a part of the repository, by cloud. */
const OWN_FOLDER = join(import.meta.dirname, "prices")
const OWN = ["nebius"]

/** Amazon: at least a minute, Linux by the second. Google: at least a minute. Azure: whole minutes. Nebius: by the second. */
const MINIMUM_BILLED_SECONDS = { aws: 60, gcp: 60, azure: 60, nebius: 1 }

/** GPU and other accelerated types of the source of January 2026. */
const ACCELERATED = "^(g[0-9]|gr[0-9]|p[0-9]|inf[0-9]|trn1|dl2q)"

/** Sizes that the newer source of Azure may list with the price for Windows. The older source counts for all of them. */
const AZURE_BY_OLDER = "^Standard_([DE][0-9]+(-[0-9]+)?ad?s_v5$|B.*_v2$|NCC)"

/** Regions that only the older source of Azure has. */
const AZURE_REGIONS_BY_OLDER = "^(belgiumcentral|denmarkeast)$"

/** Sources of the prices and of the machines. The order counts: see PriceSource. */
const SOURCES: readonly PriceSource[] = [
  source("aws", "on-demand, most regions; spot", "ec2-instances-info (Vantage)", "2025-04-24", "MIT", [{}]),
  source("aws", "on-demand of accelerated types", "tsaol/aws-gpu (Vantage)", "2026-01-21", "MIT", [
    { provisioning: "onDemand", instanceTypes: ACCELERATED },
  ]),
  source("aws", "on-demand in us-east-1", "karpenter-provider-aws 1.15.1", "2026-07-20", "Apache-2.0", [
    { provisioning: "onDemand", regions: "^us-east-1$" },
  ]),
  source("aws", "on-demand in GovCloud", "karpenter-provider-aws 1.15.1", "2026-08-24", "Apache-2.0", [
    { provisioning: "onDemand", regions: "^us-gov-" },
  ]),
  source("aws", "sizes, architectures, accelerators", "moto 5.2.5 (DescribeInstanceTypes)", "2026-10-27", "Apache-2.0"),
  source("gcp", "on-demand, spot, sizes", "google-cloud-pricing-cost-calculator", "2026-07-30", "Apache-2.0", [{}]),
  // The price of such a machine is a sum. The older part counts.
  source("gcp", "GPUs of N1 machines", "anycloud-sh/catalog", "2026-05-20", "none stated", [{ instanceTypes: "_" }]),
  source("azure", "on-demand", "karpenter-provider-azure (retail price API)", "2026-06-18", "Apache-2.0", [
    { provisioning: "onDemand" },
  ]),
  source(
    "azure",
    "spot, sizes, some on-demand",
    "anycloud-sh/catalog (retail price API)",
    "2026-05-20",
    "none stated",
    [
      { provisioning: "spot" },
      { provisioning: "onDemand", instanceTypes: AZURE_BY_OLDER },
      { provisioning: "onDemand", regions: AZURE_REGIONS_BY_OLDER },
    ],
  ),
  source("azure", "fractions of GPUs", "MicrosoftDocs/azure-compute-docs", "2025-12-31", "CC BY 4.0"),
  source(
    "nebius",
    "on-demand, spot of H100 and H200",
    "docs.nebius.com/compute/resources/pricing",
    "2026-10-01",
    "facts",
    [{}],
  ),
  // Of May 2026 or later: its price of H100 is that of nebius.com/prices on that day.
  source("nebius", "on-demand of L40S; sizes", "skypilot-catalog v7, nebius/vms.csv", "2026-05-18", "Apache-2.0", [
    { instanceTypes: "^gpu-l40s-" },
  ]),
]

/** Groups that are narrower than a macro-region, by the clouds' own names. `eea`: regions where the GDPR is law. */
const UK = ["eu-west-2", "europe-west2", "uksouth", "ukwest"]
const SWITZERLAND = ["eu-central-2", "europe-west6", "switzerlandnorth", "switzerlandwest"]
const NEW_ZEALAND = ["newzealandnorth"]

function source(
  ...[cloud, what, name, date, licence, covers]: [
    cloud: string,
    what: string,
    name: string,
    date: string,
    licence: string,
    covers?: readonly Coverage[],
  ]
): PriceSource {
  return { cloud, what, name, date, licence, ...(covers !== undefined && { covers }) }
}

/** Reads the folder. @throws Error that names the file and line of an unexpected value */
export function priceListOf(folder: string): PriceList {
  const regions = [folder, OWN_FOLDER]
    .flatMap((from) => csv(join(from, "regions.csv"), REGION_COLUMNS).map(regionOf))
    .sort(compareRegions)
  const regionNumbers = new Map(regions.map(({ cloud, name }, index) => [`${cloud}/${name}`, index]))
  const fileOf = (cloud: string) => join(OWN.includes(cloud) ? OWN_FOLDER : folder, `${cloud}.csv`)
  const rows = CLOUDS.flatMap((cloud) => csv(fileOf(cloud), COLUMNS)).flatMap((cells) => {
    const row = rowOf(cells, regionNumbers)
    return row.onDemand === 0 && row.spot === 0 ? [] : [row]
  })
  const machines = machinesOf(rows.map(({ machine }) => machine))
  const numbers = new Map(machines.map((machine, index) => [JSON.stringify(machine), index]))
  const numbered = rows
    .map((row) => ({ ...row, number: numbers.get(JSON.stringify(row.machine)) as number }))
    .sort((a, b) => a.number - b.number || a.region - b.region)
  const list = {
    sources: SOURCES,
    minimumBilledSeconds: MINIMUM_BILLED_SECONDS,
    machines,
    regions,
    machine: Uint32Array.from(numbered, ({ number }) => number),
    region: Uint32Array.from(numbered, ({ region }) => region),
    onDemand: Uint32Array.from(numbered, ({ onDemand }) => onDemand),
    spot: Uint32Array.from(numbered, ({ spot }) => spot),
  }
  return { ...list, suspects: findSuspects(list) }
}

interface Row {
  machine: Machine
  region: number
  onDemand: number
  spot: number
}

/** A row without prices is a machine that is not for sale. */
function rowOf(cells: readonly string[], regionNumbers: ReadonlyMap<string, number>): Row {
  const [cloud = "", name = "", instanceType = "", cpu, memory, arch, model, count, vram, price, spotPrice] = cells
  const region = regionNumbers.get(`${cloud}/${name}`)
  if (region === undefined) throw new Error(`${cloud} ${name} is not in regions.csv`)
  if (arch !== "amd64" && arch !== "arm64") throw new Error(`${instanceType}: unknown architecture "${arch}"`)
  const gpu = model ? { model, count: decimal(count), vramGib: vram ? decimal(vram) : 0 } : undefined
  const machine: Machine = {
    cloud,
    instanceType,
    architecture: arch,
    cpu: burstableOf(cloud, instanceType)?.cpu ?? decimal(cpu),
    memoryGib: decimal(memory),
    ...(gpu !== undefined && { gpu }),
  }
  const sold = (provisioning: "onDemand" | "spot", usd: string | undefined): number =>
    !usd || whyUnlaunchable(machine, name, provisioning) !== undefined ? 0 : Math.round(decimal(usd) * 1e6)
  return { machine, region, onDemand: sold("onDemand", price), spot: sold("spot", spotPrice) }
}

function decimal(text: string | undefined): number {
  const value = Number(text)
  if (!text || !Number.isFinite(value) || value < 0) throw new Error(`"${text}" is not a number of at least 0`)
  return value
}

/** Returns each machine once, the small ones first. That order breaks ties. */
function machinesOf(all: readonly Machine[]): Machine[] {
  const byKey = new Map(all.map((machine) => [JSON.stringify(machine), machine]))
  return [...byKey.values()].sort(
    (a, b) =>
      a.cpu - b.cpu ||
      a.memoryGib - b.memoryGib ||
      (a.gpu?.count ?? 0) - (b.gpu?.count ?? 0) ||
      compareText(a.instanceType, b.instanceType) ||
      compareText(a.cloud, b.cloud),
  )
}

function regionOf([cloud = "", name = "", macroRegion = ""]: readonly string[]): Region {
  const groups = [macroRegion]
  if (macroRegion === "eu" && UK.includes(name)) groups.push("uk")
  else if (macroRegion === "eu" && SWITZERLAND.includes(name)) groups.push("ch")
  else if (macroRegion === "eu") groups.push("eea")
  if (macroRegion === "oceania" && !NEW_ZEALAND.includes(name)) groups.push("au")
  const restricted = cloud === "aws" && name.startsWith("us-gov-")
  return { cloud, name, groups, ...(restricted && { restricted }) }
}

function compareRegions(a: Region, b: Region): number {
  return compareText(a.cloud, b.cloud) || compareText(a.name, b.name)
}

function compareText(a: string, b: string): number {
  if (a === b) return 0
  return a < b ? -1 : 1
}

/** Returns the cells of a file, line by line, without the header. */
function csv(path: string, columns: string): string[][] {
  const [head, ...lines] = readFileSync(path, "utf8").trimEnd().split(/\r?\n/)
  if (head !== columns) throw new Error(`${path}: expected the columns ${columns}, found ${head}`)
  return lines.map(cellsOf)
}

/** Parses a line by RFC 4180, except line breaks within quotes. */
function cellsOf(line: string): string[] {
  if (!line.includes('"')) return line.split(",")
  return [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)].map(
    ([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain ?? "",
  )
}

function compress(bytes: Uint8Array): Buffer {
  return brotliCompressSync(bytes, {
    params: {
      [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY,
      [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS,
      [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
    },
  })
}

function main(): void {
  const { positionals, values } = parseArgs({ allowPositionals: true, options: { check: { type: "boolean" } } })
  const [folder] = positionals
  if (folder === undefined || positionals.length > 1) {
    console.error("usage: scripts/catalogue.ts FOLDER [--check]")
    process.exitCode = 2
    return
  }
  const list = priceListOf(folder)
  const bytes = encode(list)
  if (values.check) {
    const isSame = Buffer.compare(bytes, encode(readPriceList())) === 0
    console.log(isSame ? "the shipped price list is that of the folder" : "the shipped price list differs")
    process.exitCode = isSame ? 0 : 1
    return
  }
  const compressed = compress(bytes)
  writeFileSync(SHIPPED_FILE, compressed)
  const offers = buildOffers(list).machine.length
  console.log(
    `${offers} offers of ${list.machines.length} machines in ${list.regions.length} regions, ` +
      `${list.suspects.length} suspects: ${compressed.length} bytes`,
  )
}

if (import.meta.main) main()
