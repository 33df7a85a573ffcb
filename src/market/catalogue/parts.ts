import type { DiskPrice } from "../../clouds/definition.ts"
import { vmsOf } from "../../clouds/definitions.ts"
import { chooseBootDisk } from "../../clouds/machines/disk.ts"
import type { BootDisk, OrderedDisk } from "../../core/apis/disk.ts"
import type { PartPrices } from "../router/parts.ts"
import type { Machine, Region } from "../router/table.ts"
import { compileGlob } from "./glob.ts"
import type { AddressRule, DiskRule, Overlay } from "./overlay.ts"

/** Mean hours of a month. Prices a month are divided by them. */
const HOURS_A_MONTH = 730

/**
 * A MiB/s above the included throughput costs as much as this part of a GiB: $0.04 and $0.08 for gp3 in us-east-1 and for
 * Hyperdisk Balanced in us-central1, $0.048 and $0.096 for gp3 in ap-northeast-1, $0.0476 and $0.0952 in eu-central-1.
 */
const MIBPS_AS_GIB = 0.5

/** Boot disks of machines. A machine is the same object in every catalogue that is built from one price list. */
const BOOT_DISKS = new WeakMap<Machine, BootDisk>()

/**
 * Returns the clouds' prices of disks and addresses, with an installation's own rules before them. If several rules
 * match, the last one holds.
 */
export function partPrices({
  disks = [],
  addresses = [],
}: Partial<Pick<Overlay, "disks" | "addresses">> = {}): PartPrices {
  const diskRules = disks
    .map(({ rule }) => ({ rule, matches: regionMatcher(rule), isType: compileGlob(rule.type) }))
    .reverse()
  const addressRules = addresses.map(({ rule }) => ({ rule, matches: regionMatcher(rule) })).reverse()
  return {
    bootDiskOf: (machine) => {
      const known = BOOT_DISKS.get(machine)
      if (known !== undefined) return known
      const found = chooseBootDisk(machine)
      if (found !== undefined) BOOT_DISKS.set(machine, found)
      return found
    },
    diskUsd: (region, disk, isStrict) => {
      const price = vmsOf(region.cloud)?.diskPrices[disk.type]
      const own = diskRules.find(({ matches, isType }) => matches(region) && isType(disk.type))
      if (own !== undefined) return (own.rule.gibMonthUsd * billedGib(price, disk)) / HOURS_A_MONTH
      return price === undefined ? 0 : listPriceUsd(price, region, { disk, isStrict }) / HOURS_A_MONTH
    },
    isDiskPriceKnown: (region, type) => {
      const price = vmsOf(region.cloud)?.diskPrices[type]
      if (price === undefined || isPublished(price, region)) return true
      return diskRules.some(({ matches, isType }) => matches(region) && isType(type))
    },
    addressUsd: (region, provisioning) =>
      addressRules.find(({ matches, rule }) => matches(region) && (rule.provisioning ?? provisioning) === provisioning)
        ?.rule.hourlyPriceUsd ??
      vmsOf(region.cloud)?.addressUsd[provisioning] ??
      0,
  }
}

/** Returns the positions of the rules that match no region. */
export function idlePartRules(
  rules: Pick<Overlay, "disks" | "addresses">,
  regions: readonly Region[],
): { key: "disks" | "addresses"; index: number }[] {
  return (["disks", "addresses"] as const).flatMap((key) =>
    rules[key].flatMap(({ rule, index }) => (regions.some(regionMatcher(rule)) ? [] : [{ key, index }])),
  )
}

/** Returns the price of a disk, USD a month. */
function listPriceUsd(
  price: DiskPrice,
  region: Region,
  { disk, isStrict }: { disk: OrderedDisk; isStrict: boolean },
): number {
  const { sizes, elsewhere, mostTimes = 1 } = price
  const [ownUsd] = price.byPrice.find(([, regions]) => isIn(regions, region)) ?? []
  const times = isStrict && !isPublished(price, region) ? mostTimes : 1
  if (elsewhere === undefined) {
    const [, usd] = sizes?.find(([gib]) => gib >= disk.sizeGib) ?? sizes?.at(-1) ?? []
    return (usd ?? 0) * times
  }
  const highestUsd = Math.max(...Object.values(elsewhere))
  const nearUsd = elsewhere[region.groups[0] ?? ""] ?? highestUsd
  return (ownUsd ?? (isStrict ? highestUsd : nearUsd)) * times * billedGib(price, disk)
}

function isPublished({ byPrice, published }: DiskPrice, region: Region): boolean {
  return published === undefined ? byPrice.some(([, regions]) => isIn(regions, region)) : isIn(published, region)
}

function isIn(regions: string, { name }: Region): boolean {
  return regions.split(" ").includes(name)
}

/** Returns the size that the cloud bills, GiB, with its throughput at the price of this many GiB. */
function billedGib(price: DiskPrice | undefined, { sizeGib, performance }: OrderedDisk): number {
  const { sizes, includedMibps = Number.POSITIVE_INFINITY } = price ?? {}
  const capacity = sizes?.find(([gib]) => gib >= sizeGib)?.[0] ?? sizeGib
  return capacity + Math.max(0, (performance?.mibps ?? 0) - includedMibps) * MIBPS_AS_GIB
}

function regionMatcher({ cloud, region }: DiskRule | AddressRule): (region: Region) => boolean {
  const [isCloud, isRegion] = [compileGlob(cloud), compileGlob(region)]
  return ({ cloud: of, name, groups }) => isCloud(of) && (isRegion(name) || groups.some(isRegion))
}
