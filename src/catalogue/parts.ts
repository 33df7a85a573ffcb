import type { BootDisk } from "../apis/disk.ts"
import { bootDiskOf } from "../machines/disk.ts"
import type { PartPrices } from "../router/parts.ts"
import type { Machine, Region } from "../router/table.ts"
import { ADDRESS_USD, DISK_PRICES, type DiskPrice } from "./disk-prices.ts"
import { globOf } from "./glob.ts"
import type { AddressRule, DiskRule, Overlay } from "./overlay.ts"

/** Mean hours of a month. Prices a month are divided by them. */
const HOURS_A_MONTH = 730

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
    .map(({ rule }) => ({ rule, matches: regionMatcher(rule), isType: globOf(rule.type) }))
    .reverse()
  const addressRules = addresses.map(({ rule }) => ({ rule, matches: regionMatcher(rule) })).reverse()
  return {
    bootDiskOf: (machine) => {
      const known = BOOT_DISKS.get(machine)
      if (known !== undefined) return known
      const found = bootDiskOf(machine)
      if (found !== undefined) BOOT_DISKS.set(machine, found)
      return found
    },
    diskUsd: (region, { type, sizeGib }) => {
      const price = DISK_PRICES[region.cloud]?.[type]
      const own = diskRules.find(({ matches, isType }) => matches(region) && isType(type))
      const monthlyUsd =
        own === undefined
          ? price && listPriceUsd(price, region, sizeGib)
          : own.rule.gibMonthUsd * billedGib(price?.sizes, sizeGib)
      return (monthlyUsd ?? 0) / HOURS_A_MONTH
    },
    addressUsd: (region) =>
      addressRules.find(({ matches }) => matches(region))?.rule.hourlyPriceUsd ?? ADDRESS_USD[region.cloud] ?? 0,
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
function listPriceUsd({ byPrice, otherUsd, sizes }: DiskPrice, { name }: Region, sizeGib: number): number {
  const [ownUsd] = byPrice.find(([, regions]) => regions.split(" ").includes(name)) ?? []
  const gibUsd = ownUsd ?? otherUsd
  if (gibUsd !== undefined) return gibUsd * billedGib(sizes, sizeGib)
  const [, usd] = sizes?.find(([gib]) => gib >= sizeGib) ?? sizes?.at(-1) ?? []
  return usd ?? 0
}

/** Returns the size that the cloud bills, GiB. */
function billedGib(sizes: DiskPrice["sizes"], sizeGib: number): number {
  return sizes?.find(([gib]) => gib >= sizeGib)?.[0] ?? sizeGib
}

function regionMatcher({ cloud, region }: DiskRule | AddressRule): (region: Region) => boolean {
  const [isCloud, isRegion] = [globOf(cloud), globOf(region)]
  return ({ cloud: of, name, groups }) => isCloud(of) && (isRegion(name) || groups.some(isRegion))
}
