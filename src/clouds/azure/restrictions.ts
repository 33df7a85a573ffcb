import type { Clock } from "../../core/apis/clock.ts"
import type { Offer } from "../../core/apis/offer.ts"
import { CloudError, CredentialsError, RestrictedError } from "../../core/outbound/errors.ts"
import { seriesOf } from "../machines/machines.ts"
import type { Arm } from "./arm.ts"

const SKUS_API = "2021-07-01"
/** Time for which a region's list is used, seconds. Microsoft changes it by a request for access, which takes days. */
const LIST_SECONDS = 3600
/** Time until a list that was not answered is requested again, seconds. */
const RETRY_SECONDS = 300
/** Maximum number of pages. The list of one region has one. */
const MOST_PAGES = 20

/** Size in Azure's list, as far as it is used (https://learn.microsoft.com/rest/api/compute/resource-skus/list). */
export interface Sku {
  resourceType?: string
  name?: string
  restrictions?: readonly {
    type?: string
    restrictionInfo?: { zones?: readonly string[] }
  }[]
}

/** Sizes that a subscription may not use in one region. */
export class Restrictions {
  readonly #restricted = new Set<string>()
  /** Zones in which a size may not be used, by size. */
  readonly #zones = new Map<string, readonly string[]>()
  /** Restricted sizes for other programs: series, and single sizes of series that are not restricted as a whole. */
  readonly names: readonly string[]

  constructor(skus: readonly Sku[]) {
    const sizes = skus.filter(({ resourceType, name }) => resourceType === "virtualMachines" && name !== undefined)
    for (const { name = "", restrictions = [] } of sizes) {
      if (restrictions.some(({ type }) => type === "Location")) this.#restricted.add(name)
      const zones = restrictions.flatMap(({ type, restrictionInfo }) =>
        type === "Zone" ? (restrictionInfo?.zones ?? []) : [],
      )
      if (zones.length > 0) this.#zones.set(name, zones)
    }
    const series = Map.groupBy(sizes, ({ name = "" }) => seriesOf("azure", name))
    this.names = [...series].flatMap(([each, members]) => {
      const restricted = members.map(({ name = "" }) => name).filter((name) => this.#restricted.has(name))
      return restricted.length === members.length ? [each] : restricted
    })
  }

  /** Throws if the subscription may not use the offer. A size that the list lacks is not restricted. @throws RestrictedError */
  check({ instanceType, region, zone }: Offer): void {
    const reason = "Azure lists it as NotAvailableForSubscription"
    if (this.#restricted.has(instanceType)) {
      const message = `the requested size ${instanceType} is not available in ${region} for the subscription: ${reason}`
      throw new RestrictedError("SkuNotAvailable", message, [...new Set([instanceType, ...this.names])])
    }
    const number = zone?.split("-").at(-1) ?? ""
    if (this.#zones.get(instanceType)?.includes(number) !== true) return
    const message = `the requested size ${instanceType} is not available in zone ${number} of ${region} for the subscription: ${reason}`
    throw new RestrictedError("SkuNotAvailable", message, [])
  }
}

/** Reads the restrictions of a subscription, by region, and caches them. */
export class RestrictionLists {
  readonly #arm: Arm
  readonly #clock: Clock
  readonly #lists = new Map<string, { list: Promise<Restrictions | undefined>; until: number }>()

  constructor(arm: Arm, clock: Clock) {
    this.#arm = arm
    this.#clock = clock
  }

  /** Returns the restrictions in a region; undefined if Azure does not answer, or not to this service principal. */
  async of(region: string): Promise<Restrictions | undefined> {
    const now = this.#clock.monotonic()
    const known = this.#lists.get(region)
    if (known !== undefined && now < known.until) return await known.list
    const list: Promise<Restrictions | undefined> = this.#read(region)
    const entry = { list, until: now + LIST_SECONDS }
    this.#lists.set(region, entry)
    try {
      return await list
    } catch (error) {
      if (!(error instanceof CloudError)) throw error
      const isForbidden = error instanceof CredentialsError
      entry.list = Promise.resolve(undefined)
      entry.until = now + (isForbidden ? LIST_SECONDS : RETRY_SECONDS)
      return undefined
    }
  }

  async #read(region: string): Promise<Restrictions> {
    const skus: Sku[] = []
    const filter = encodeURIComponent(`location eq '${region}'`)
    let path = `/subscriptions/${this.#arm.subscription}/providers/Microsoft.Compute/skus?$filter=${filter}`
    for (let page = 0; page < MOST_PAGES; page++) {
      const call = { method: "GET", path, apiVersion: SKUS_API } as const
      const { value = [], nextLink } = (await this.#arm.request("read", call)) as { value?: Sku[]; nextLink?: string }
      skus.push(...value)
      if (nextLink === undefined) break
      const next = new URL(nextLink)
      next.searchParams.delete("api-version")
      path = `${next.pathname}${next.search}`
    }
    return new Restrictions(skus)
  }
}
