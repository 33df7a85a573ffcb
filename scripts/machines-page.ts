// Writes docs/machines.md: the first offer, the image and the request of each kind of machine, and the facts about all
// families. Run `scripts/machines-page.ts`. test/cloud/requests.test.ts checks that the page is current.
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { runInstancesInput } from "../src/clouds/aws/request.ts"
import { buildMachine } from "../src/clouds/azure/machine.ts"
import type { LaunchSpec } from "../src/clouds/cloud.ts"
import { buildInstance } from "../src/clouds/gcp/machine.ts"
import { chooseBootDisk } from "../src/clouds/machines/disk.ts"
import {
  type CloudMachines,
  type Exclusion,
  FAST_DISK_HOURLY_USD,
  type Family,
  findFamily,
} from "../src/clouds/machines/family.ts"
import { burstableOf, MACHINES } from "../src/clouds/machines/machines.ts"
import { buildInstance as buildNebiusInstance } from "../src/clouds/nebius/request.ts"
import { orderedDisk } from "../src/core/apis/disk.ts"
import type { JobSpec } from "../src/core/apis/job.ts"
import { type Architecture, nvidiaGpusOf, type Offer } from "../src/core/apis/offer.ts"
import { buildOffers } from "../src/market/catalogue/file.ts"
import { readPriceList } from "../src/market/catalogue/shipped.ts"
import { Catalogue } from "../src/market/router/catalogue.ts"
import { toRequirements } from "../src/market/router/requirements.ts"
import { rankPlacements } from "../src/market/router/route.ts"

export const PAGE = join(import.meta.dirname, "..", "docs", "machines.md")

const CLOUDS = ["aws", "gcp", "azure", "nebius"] as const
export type CloudName = (typeof CLOUDS)[number]

/** Requests that create a VM, by cloud. */
type Requests = Record<CloudName, (spec: LaunchSpec) => object>

const REQUESTS: Requests = {
  aws: (spec) => runInstancesInput(spec, { SecurityGroupIds: ["sg-0123456789abcdef0"] }),
  gcp: (spec) => buildInstance(spec, `${spec.offer.region}-a`, {}),
  azure: (spec) => {
    const network = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network"
    const place = {
      subnetId: `${network}/virtualNetworks/berth/subnets/berth`,
      securityGroupId: `${network}/networkSecurityGroups/berth-no-inbound`,
    }
    return buildMachine(spec, place, {})
  },
  nebius: (spec) =>
    buildNebiusInstance(spec, {
      projectId: "project-e00abc",
      subnetId: "vpcsubnet-e00abc",
      securityGroupId: "vpcsecuritygroup-e00abc",
      imageId: "computeimage-e00abc",
    }),
}

/** Request that creates a VM of a family, at the family's first offer. */
export interface GoldenRequest {
  cloud: CloudName
  /** Path of its golden file, from the repository's root. */
  file: string
  offer: Offer
  /** Name of the machine image, which AWS' requests have as an id. */
  image: string
  request: object
}

/** Returns the request for an offer. The user data is that of no real VM. */
export function requestFor(offer: Offer): object {
  const cloud = CLOUDS.find((name) => name === offer.cloud)
  if (cloud === undefined) throw new Error(`no requests for the cloud ${offer.cloud}`)
  return REQUESTS[cloud]({
    name: "5cbd7f6e-93a4-4b0c-8a55-1f0e3a8e0a10-1",
    installation: "golden",
    tags: { "berth.dev/project": "p-1", "berth.dev/job": "a-job" },
    offer,
    ...(cloud === "aws" && { imageId: "ami-0123456789abcdef0" }),
    userData: "#cloud-config\n{}\n",
    lifetimeSeconds: 3600,
  })
}

const list = readPriceList()
const catalogue = new Catalogue(buildOffers(list))

/** Returns the requests of all families that the shipped list has, and of one spot VM for each cloud. */
export function goldenRequests(): GoldenRequest[] {
  const first = new Map<string, Offer>()
  for (const offer of catalogue.offers()) {
    const key = goldenKey(offer)
    const known = key === undefined ? undefined : first.get(key)
    if (key === undefined || (known !== undefined && isBefore(known, offer))) continue
    first.set(key, offer)
  }
  const found = [...first].sort(([a], [b]) => (a < b ? -1 : 1))
  return found.map(([key, { priceDate: _, ...priced }]) => {
    // The request has a digest of the offer. New prices must change no golden file.
    const offer = { ...priced, hourlyPriceUsd: 1 }
    const cloud = CLOUDS.find((name) => name === offer.cloud) as CloudName
    return { cloud, file: `test/cloud/golden/${key}.json`, offer, image: imageOf(offer), request: requestFor(offer) }
  })
}

function imageOf(offer: Offer): string {
  const table = MACHINES[offer.cloud] as CloudMachines
  return table.images[findFamily(table, offer)?.image ?? ""]?.name ?? ""
}

/** Returns the golden file of an offer: by family, for credits, or by cloud for spot VMs. Spot requests of a cloud's families differ in the same fields. */
function goldenKey(offer: Offer): string | undefined {
  const table = MACHINES[offer.cloud]
  const family = table && findFamily(table, offer)
  if (family === undefined) return undefined
  const isBurstable = burstableOf(offer.cloud, offer.instanceType) !== undefined
  if (offer.cloud === "aws" && isBurstable) return offer.provisioning === "onDemand" ? "aws/burstable" : undefined
  if (offer.provisioning === "onDemand") return `${offer.cloud}/${slug(family.name)}`
  return `${offer.cloud}/${offer.gpu === undefined ? "spot" : "spot-gpu"}`
}

/** Orders offers independent of prices, so that new prices change no golden file. */
function isBefore(a: Offer, b: Offer): boolean {
  const keys = [a, b].map(({ cpu, instanceType, region }) => [String(cpu).padStart(6), instanceType, region].join(" "))
  return (keys[0] as string) <= (keys[1] as string)
}

function slug(name: string): string {
  return name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^-|-$/g, "")
}

interface Column {
  name: string
  spec: Partial<Omit<JobSpec, "image">>
  architecture?: Architecture
  /** True for fractions of a GPU, which a job requests by memory, not by model. */
  fraction?: true
}

const gpu = (model: string): Column["spec"] => ({ resources: { gpu: { model } } })

const COLUMNS: readonly Column[] = [
  { name: "CPU, amd64", spec: {}, architecture: "amd64" },
  { name: "CPU, arm64", spec: {}, architecture: "arm64" },
  { name: "T4", spec: gpu("T4") },
  { name: "L4", spec: gpu("L4") },
  { name: "A10", spec: gpu("A10") },
  { name: "A10G", spec: gpu("A10G") },
  { name: "A100", spec: gpu("A100") },
  { name: "H100", spec: gpu("H100") },
  { name: "fraction of a GPU", spec: { resources: { gpu: { vram: "1Gi" } } }, fraction: true },
  { name: "CPU, spot", spec: { provisioning: "spot" } },
]

/** Returns the offer that Berth picks first on one cloud. */
function firstOffer(cloud: CloudName, { spec, architecture, fraction }: Column): Offer | undefined {
  const requirements = toRequirements(
    { image: "busybox", ...spec, cloud: [cloud] },
    architecture === undefined ? [] : [architecture],
  )
  const context = { launchAccounts: [{ cloud }], cooldowns: [], room: {}, expectedSeconds: 3600, now: new Date(0) }
  const ranked = rankPlacements(requirements, catalogue, { ...context, count: fraction ? 5000 : 1 })
  return ranked.find(({ offer }) => !fraction || (nvidiaGpusOf(offer)?.count ?? 1) < 1)?.offer
}

function picksTable(): string {
  const rows = COLUMNS.flatMap((column) => CLOUDS.map((cloud) => pickRow(cloud, column)))
  const head = "| machine | cloud | first offer | image | boot disk | request |"
  return [head, "|---|---|---|---|---|---|", ...rows].join("\n")
}

function pickRow(cloud: CloudName, column: Column): string {
  const offer = firstOffer(cloud, column)
  const table = MACHINES[cloud]
  const family = offer && table && findFamily(table, offer)
  if (offer === undefined || table === undefined || family === undefined) {
    return `| ${column.name} | ${cloud} | none: ${whyNone(cloud, column)} | | | |`
  }
  const image = table.images[family.image]
  const key = goldenKey({ ...offer, provisioning: column.spec.provisioning === "spot" ? "spot" : "onDemand" })
  const cells = [
    column.name,
    cloud,
    `\`${offer.instanceType}\` in ${offer.region}`,
    `[\`${shortName(image?.name ?? "")}\`](${image?.source})`,
    diskOf(offer),
    `[${key}](../test/cloud/golden/${key}.json)`,
  ]
  return `| ${cells.join(" | ")} |`
}

/** Returns the reason why no offer of a cloud fits a column. The shipped list has no machines that are left out. */
function whyNone(cloud: CloudName, { name, fraction }: Column): string {
  const rules: readonly Exclusion[] = MACHINES[cloud]?.exclusions ?? []
  const rule = rules.find(({ gpu: cards }) => (fraction ? cards?.fractions : cards?.models.includes(name)))
  return rule?.reason ?? "the cloud sells no such machine"
}

/** Returns the boot disk in the request. */
function diskOf(offer: Offer): string {
  const boot = chooseBootDisk(offer)
  if (boot === undefined) return ""
  const { type, sizeGib, performance } = orderedDisk(boot)
  const speed = performance === undefined ? "" : `, ${performance.mibps} MiB/s`
  return `${sizeGib} GiB \`${type}\`${speed}`
}

function shortName(image: string): string {
  return image.replace(/^projects\/.*\/family\//, "").replace(/^\/aws\/service\/ecs\/optimized-ami\//, "")
}

/** Quotas that a cell lists. */
const MOST_QUOTAS = 8

function familiesTable(cloud: CloudName, { families, quotaOf }: CloudMachines): string {
  const head = "| family | machine types | image | disk | kernel module | other needs | quota | source |"
  const rows = families.map((family) => {
    const { name, types, image, diskType, gpu: cards, source } = family
    const own = list.machines.filter(
      (machine) => machine.cloud === cloud && findFamily(MACHINES[cloud] as CloudMachines, machine) === family,
    )
    const quotas = [...new Set(own.map(({ instanceType }) => quotaOf(instanceType)))]
    const models = cards === undefined ? "" : `${cards.models.join(", ")}: ${cards.module}`
    const quota = quotas.length > MOST_QUOTAS ? "one for each series" : quotas.join(", ")
    const cells = [
      name,
      code(types.source),
      image,
      code(diskType),
      models,
      othersOf(family),
      quota,
      `[page](${source})`,
    ]
    return `| ${cells.join(" | ")} |`
  })
  return [head, "|---|---|---|---|---|---|---|---|", ...rows].join("\n")
}

function othersOf({ diskController, security, pinned, architecture, gpu: cards }: Family): string {
  return [
    architecture === "arm64" && "Arm",
    diskController !== undefined && `disk controller ${diskController}`,
    security === "secureBoot" && "Secure Boot",
    security === "unsigned" && "no Secure Boot",
    pinned === true && "no live migration",
    cards?.fraction === true && "fraction of a card",
  ]
    .filter((need) => need !== false)
    .join(", ")
}

function bootTable(): string {
  const kinds = { cpu: "no GPU", gpu: "1 to 7 GPUs", eightGpus: "8 GPUs or more" } as const
  const rows = CLOUDS.flatMap((cloud) =>
    Object.entries(MACHINES[cloud]?.bootDeadlines ?? {}).map(
      ([kind, { seconds, source }]) =>
        `| ${cloud} | ${kinds[kind as keyof typeof kinds]} | ${seconds / 60} minutes | [page](${source}) |`,
    ),
  )
  return ["| cloud | machine | time to boot | source |", "|---|---|---|---|", ...rows].join("\n")
}

function imagesTable(): string {
  const rows = CLOUDS.flatMap((cloud) =>
    Object.entries(MACHINES[cloud]?.images ?? {}).map(
      ([key, { name, leastDiskGib, driver = "", source }]) =>
        `| ${cloud} | ${key} | ${code(name)} | ${leastDiskGib} GiB | ${driver} | [page](${source}) |`,
    ),
  )
  return ["| cloud | key | image | its own disk | driver | source |", "|---|---|---|---|---|---|", ...rows].join("\n")
}

/** Returns the machines that share their cores, those with the same numbers in one row. */
function burstableTable(): string {
  const all = CLOUDS.flatMap((cloud) => (MACHINES[cloud]?.burstable ?? []).map((one) => ({ cloud, ...one })))
  const rows = all.map(
    ({ cloud, types, cpu, source }) => `| ${cloud} | ${code(types.source)} | ${cpu} | [page](${source}) |`,
  )
  return ["| cloud | machine types | counted vCPUs | source |", "|---|---|---|---|", ...rows].join("\n")
}

/** Returns the machines with a faster boot disk. */
function fastDisksTable(): string {
  const rows = CLOUDS.flatMap((cloud) => {
    const { types, mibps, type } = (MACHINES[cloud] as CloudMachines).fastDisk
    return [`| ${cloud} | ${code(types.source)} | ${type === undefined ? `${mibps} MiB/s` : code(type)} |`]
  })
  return ["| cloud | machine types | boot disk |", "|---|---|---|", ...rows].join("\n")
}

function code(text: string): string {
  return `\`${text.replaceAll("|", "\\|")}\``
}

/** Returns the page. */
export function machinesPage(): string {
  const families = CLOUDS.map((cloud) => `### ${cloud}\n\n${familiesTable(cloud, MACHINES[cloud] as CloudMachines)}`)
  return `<!-- Generated by scripts/machines-page.ts from the tables in src/clouds and the shipped price list; do not edit -->

# Machines

This page shows what Berth asks of each cloud. [routing.md](routing.md#what-is-left-out) lists the machine types that
Berth never uses, with the reason for each.

## First offers

The offer that a job gets first if it names only this, at the shipped prices. The request is a file in the repository. A test
compares it with the provider's published description of its API. None has run against the clouds themselves.

${picksTable()}

**Fractions of a GPU.** Only AWS' image has the driver for them. Azure's \`NV*ads_A10_v5\` and Google's small G4 machines
need a driver that no image of Berth has, so Berth never uses them. Whole A10 cards of Azure need the same driver.

## What is on a VM

- **Disk.** ${CLOUDS.map((cloud) => `${cloud}: ${MACHINES[cloud]?.diskGib.cpu} GiB, and ${MACHINES[cloud]?.diskGib.gpu} GiB with GPUs`).join("; ")}.
  A disk is never smaller than its machine image, nor than three times the compressed size of the job's image. If the disk is full, the Job's message says so.
- **Speed of the disk.** gp3 and Hyperdisk Balanced are ordered with 3,000 operations a second, and with the throughput that
  their price includes: 125 and 140 MiB/s. Other disks have the speed of their size. Machines with GPUs that cost at least
  $${FAST_DISK_HOURLY_USD} an hour get a faster disk. Its price is part of the VM's price ([table](#faster-boot-disks)).
- **Local disks.** Local NVMe disks stay unused, also where a machine has them.
- **Driver.** The image has it. A VM that finds no GPU reports that and powers off. Berth then tries the next machine.
  The same holds if the engine can't give the GPU to the container.
- **Other accelerators.** Machines with accelerators of other makers run jobs that ask for no GPU.

## Time to boot

A VM has this time from its creation until its agent registers. Then Berth deletes it, and the job gets the next machine. The
times are several times what others measured. A machine with less than one vCPU has the time divided by its part of a vCPU, at
most 15 minutes.

After that the container has 30 minutes to start. A pull without any progress for five minutes ends earlier.

${bootTable()}

## Machines that share their cores

Berth counts the vCPUs that such a machine sustains for any time. A machine without credits runs at this baseline. Nothing is
charged for more. AWS' flex types (\`m7i-flex\`, \`c7i-flex\` and others) count in full.

${burstableTable()}

## Faster boot disks

A job's image of 25 GiB is unpacked in 50 s at 500 MiB/s, and in 200 s at 125 MiB/s.

${fastDisksTable()}

## Images

${imagesTable()}

## Families

The first family that matches a machine type holds.

${families.join("\n\n")}
`
}

if (import.meta.main) writeFileSync(PAGE, machinesPage())
