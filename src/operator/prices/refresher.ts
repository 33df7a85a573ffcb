import { type CredentialSources, cachedCredentials, isVerified } from "../../accounts/credentials.ts"
import { describe } from "../../clouds/capabilities.ts"
import type { PriceReader, QuotedPrices } from "../../clouds/prices.ts"
import type { Providers } from "../../clouds/provider.ts"
import { backoffSeconds, pause } from "../../core/apis/backoff.ts"
import { type Clock, secondsBetween, timestamp } from "../../core/apis/clock.ts"
import type { ConnectionType, StoredConnection } from "../../core/apis/connection.ts"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import type { Logger } from "../../core/apis/logger.ts"
import { keyOf } from "../../core/apis/meta.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { CONFIG_MAPS, type ConfigMap } from "../../core/kube/core.ts"
import type { EventRecorder } from "../../core/kube/events.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { Store } from "../../core/kube/store.ts"
import { CredentialsError } from "../../core/outbound/errors.ts"
import { scrubError } from "../../core/sealing/scrub.ts"
import {
  decodePrices,
  encodePrices,
  PRICES_CONFIG_MAP,
  type RegionPrices,
} from "../../market/catalogue/stored-prices.ts"
import { priceDatesOf } from "../../market/router/price-dates.ts"
import type { OfferTable } from "../../market/router/table.ts"
import type { PriceState, PriceStates } from "../connection/prices.ts"
import type { Fence } from "../fence.ts"

export interface PriceRefresherOptions {
  client: Pick<KubeClient, "apply">
  systemNamespace: string
  providers: Providers
  /** Connections of all projects. Verified ones are used to read prices. */
  connections: Store<StoredConnection>
  sources: CredentialSources
  /** The ConfigMap with the refreshed prices. */
  stored: Pick<Reflector<ConfigMap>, "store" | "whenSynced" | "onChange">
  /** Price list, whose machines and regions are refreshed. */
  list: OfferTable
  /** Intervals between two refreshes, hours; 0: never. */
  hours: PriceRefreshHours
  /** Seconds between two checks for a due refresh. Default 60. */
  lookSeconds?: number
  fence: Fence
  clock: Clock
  recorder: Pick<EventRecorder, "record">
  logger: Logger
}

export interface PriceRefreshHours {
  /** Interval for prices that change a few times a year. */
  list: number
  /** Interval for spot prices, which change from hour to hour. */
  market: number
}

/** Prices of one cloud that are read together. */
interface Feed {
  /** Key in the ConfigMap. */
  key: string
  cloud: ConnectionType
  prices: keyof PriceRefreshHours
  read: PriceReader
  seconds: number
}

/** Monotonic time of a feed's next refresh, seconds, and the number of failures in a row. */
interface Plan {
  at: number
  failures: number
}

/** Prices that a cloud has returned, also before an error. */
interface Reading {
  quoted: QuotedPrices[]
  calls: number
  error?: unknown
}

/** Age of a cloud's prices. */
export interface PriceAge {
  cloud: string
  prices: keyof PriceRefreshHours
  seconds: number
}

/** Delays between two failed attempts. */
const RETRY = { baseSeconds: 600, capSeconds: 6 * 3600 }
/** Timeout of one refresh, seconds. */
const READ_SECONDS = 1800
/** Maximum number of connections to try in one refresh. */
const MOST_CONNECTIONS = 3
/** Number of its intervals for which the prices of a feed are current. */
const CURRENT_INTERVALS = 2
/** Random part of an interval, in each direction, so that installations don't read prices at the same time. */
const JITTER = 0.1

/**
 * Reads prices from clouds, by connections to them. Stores them in a ConfigMap that the operator and the façade read.
 * Prices that can't be read stay unchanged.
 */
export class PriceRefresher implements PriceStates {
  readonly #options: PriceRefresherOptions
  readonly #feeds: readonly Feed[]
  readonly #plans = new Map<string, Plan>()
  /** Errors of the last refresh of each feed, by connection. */
  readonly #failures = new Map<string, ReadonlyMap<string, unknown>>()
  readonly #listeners = new Set<(cloud?: string) => void>()

  constructor(options: PriceRefresherOptions) {
    this.#options = options
    this.#feeds = feedsOf(options)
  }

  /** Refreshes due prices repeatedly until the signal. Only one process may do this at a time. */
  async run(signal: AbortSignal): Promise<void> {
    const { stored, clock, logger, lookSeconds = 60 } = this.#options
    await stored.whenSynced(signal).catch(() => undefined)
    // An earlier leader may have refreshed prices since: only the times in the ConfigMap count.
    this.#plans.clear()
    while (!signal.aborted) {
      await this.round(signal).catch(
        (err: unknown) => signal.aborted || logger.error({ err }, "a price refresh failed"),
      )
      await pause(clock, lookSeconds, signal).catch(() => undefined)
    }
  }

  async round(signal: AbortSignal): Promise<void> {
    for (const feed of this.#feeds) {
      const { at } = this.#planOf(feed)
      if (!signal.aborted && at <= this.#options.clock.monotonic()) await this.#refresh(feed, signal)
    }
  }

  /**
   * Returns the age of the prices that routing uses, of clouds with a connection. Prices that were never refreshed are as
   * old as those of the shipped list.
   */
  ages(): PriceAge[] {
    const { connections, clock } = this.#options
    const connected = new Set<string>(connections.list().map(({ spec }) => spec.type))
    return this.#feeds.flatMap((feed) => {
      const time = this.#timeOf(feed) ?? this.#listedOf(feed)
      if (time === undefined || !connected.has(feed.cloud)) return []
      return [{ cloud: feed.cloud, prices: feed.prices, seconds: secondsBetween(time, clock.now()) }]
    })
  }

  statesFor(connection: StoredConnection): PriceState[] {
    return this.#feeds.flatMap((feed) => {
      const time = this.#timeOf(feed)
      const date = (time ?? this.#listedOf(feed))?.slice(0, "YYYY-MM-DD".length)
      if (feed.cloud !== connection.spec.type || date === undefined) return []
      const age = time === undefined ? Number.POSITIVE_INFINITY : secondsBetween(time, this.#options.clock.now())
      const failure = this.#failureFor(feed, connection)
      const isCurrent = age <= CURRENT_INTERVALS * feed.seconds
      return [{ what: this.#whatOf(feed), date, isShipped: time === undefined, isCurrent, ...(failure && { failure }) }]
    })
  }

  onChange(listener: (cloud?: string) => void): () => void {
    this.#listeners.add(listener)
    const unsubscribe = this.#options.stored.onChange(() => listener())
    return () => {
      this.#listeners.delete(listener)
      unsubscribe()
    }
  }

  /** Returns the failure that a connection met, or that of others without its words. */
  #failureFor({ key }: Feed, connection: StoredConnection): PriceState["failure"] {
    const failures = this.#failures.get(key)
    const own = failures?.get(keyOf(connection))
    if (own !== undefined) {
      return { isForbidden: own instanceof CredentialsError, message: describe(own) }
    }
    if (failures === undefined || failures.size === 0) return undefined
    return { isForbidden: [...failures.values()].every((error) => error instanceof CredentialsError) }
  }

  #whatOf({ cloud, prices }: Feed): string {
    if (prices === "market") return "spot"
    const hasMarket = this.#feeds.some((feed) => feed.cloud === cloud && feed.prices === "market")
    return hasMarket ? "on-demand" : "on-demand and spot"
  }

  /** Returns the day of the shipped prices that a feed refreshes; undefined if there are none. */
  #listedOf({ cloud, prices }: Feed): string | undefined {
    const hasMarket = this.#feeds.some((feed) => feed.cloud === cloud && feed.prices === "market")
    const isOf = (provisioning: string) => !hasMarket || (provisioning === "spot") === (prices === "market")
    return priceDatesOf(this.#options.list)
      .flatMap((dates) => (dates.cloud === cloud && isOf(dates.provisioning) ? dates.date : []))
      .toSorted()[0]
  }

  #planOf(feed: Feed): Plan {
    const known = this.#plans.get(feed.key)
    if (known !== undefined) return known
    const { clock } = this.#options
    const time = this.#timeOf(feed)
    const left = time === undefined ? 0 : feed.seconds - secondsBetween(time, clock.now())
    const plan = { at: clock.monotonic() + left, failures: 0 }
    this.#plans.set(feed.key, plan)
    return plan
  }

  async #refresh(feed: Feed, signal: AbortSignal): Promise<void> {
    const { clock, connections, sources } = this.#options
    const all = connections.list().filter((known) => known.spec.type === feed.cloud && isVerified(known, sources))
    // Without a connection no job can run there, so its prices are not needed.
    if (all.length === 0) return
    const { failures } = this.#planOf(feed)
    const tried = Array.from({ length: Math.min(all.length, MOST_CONNECTIONS) }, (_, index) => {
      return all[(failures * MOST_CONNECTIONS + index) % all.length] as StoredConnection
    })
    const failed = new Map<string, unknown>()
    const error = await this.#refreshBy(tried, { feed, failed }, signal)
    if (signal.aborted) return
    this.#failures.set(feed.key, failed)
    for (const listener of this.#listeners) listener(feed.cloud)
    if (error !== undefined) this.#report(feed, error)
    const seconds = feed.seconds * (1 - JITTER + 2 * JITTER * Math.random())
    const retry = backoffSeconds(failures + 1, { ...RETRY, capSeconds: Math.min(RETRY.capSeconds, feed.seconds) })
    const isDone = error === undefined
    this.#plans.set(feed.key, {
      at: clock.monotonic() + (isDone ? seconds : retry),
      failures: isDone ? 0 : failures + 1,
    })
  }

  /** Reads by one connection, or by the next one if the cloud rejects the credentials. Returns the error. @param failed gets the errors of the connections */
  async #refreshBy(
    connections: readonly StoredConnection[],
    { feed, failed }: { feed: Feed; failed: Map<string, unknown> },
    signal: AbortSignal,
  ): Promise<unknown> {
    let last: unknown
    for (const connection of connections) {
      const { quoted, calls, error } = await this.#read(feed, connection, signal)
      if (quoted.length > 0 && !signal.aborted) {
        try {
          await this.#write(feed, quoted, calls)
        } catch (notWritten) {
          return notWritten
        }
      }
      last = error
      if (error !== undefined) failed.set(keyOf(connection), error)
      if (quoted.length > 0 || !(error instanceof CredentialsError)) break
    }
    return last
  }

  async #read({ cloud, read }: Feed, connection: StoredConnection, stop: AbortSignal): Promise<Reading> {
    const { list, sources } = this.#options
    const reading: Reading = { quoted: [], calls: 0 }
    let fields: CredentialFields = {}
    try {
      const credentials = await cachedCredentials(sources)(connection)
      fields = credentials
      const answers = read({
        credentials,
        // Restricted regions need other accounts, which have other prices.
        regions: list.regions.filter((region) => region.cloud === cloud && !region.restricted).map(({ name }) => name),
        machines: list.machines.filter((machine) => machine.cloud === cloud),
        signal: AbortSignal.any([stop, AbortSignal.timeout(READ_SECONDS * 1000)]),
        onCall: () => {
          reading.calls++
        },
      })
      for await (const quoted of answers) reading.quoted.push(quoted)
      return reading
    } catch (error) {
      return { ...reading, error: scrubError(error, fields) }
    }
  }

  /** Stores the new prices. Regions without new prices keep the stored ones. */
  async #write({ key, cloud, prices: which }: Feed, quoted: readonly QuotedPrices[], calls: number): Promise<void> {
    const { client, systemNamespace: namespace, fence, clock, logger } = this.#options
    const time = timestamp(clock.now())
    const refreshed = new Set(quoted.map(({ region, provisioning }) => `${region}/${provisioning}`))
    const before = (await this.#storedPrices(key)).filter(
      ({ region, provisioning }) => !refreshed.has(`${region}/${provisioning}`),
    )
    const prices = [...before, ...quoted.map((region) => ({ cloud, time, ...region }))]
    const content = Buffer.from(await encodePrices(cloud, prices)).toString("base64")
    fence()
    const metadata = { name: PRICES_CONFIG_MAP, namespace }
    // Each feed has its own field owner, so that a write of one leaves the others unchanged.
    const options = { fieldManager: `berth-prices-${key}`, force: true }
    await client.apply(
      CONFIG_MAPS,
      { metadata, data: { [timeKey(key)]: time }, binaryData: { [key]: content } },
      options,
    )
    const machines = quoted.reduce((sum, region) => sum + region.prices.size, 0)
    logger.info({ cloud, prices: which, regions: refreshed.size, machines, calls }, "prices were refreshed")
  }

  async #storedPrices(key: string): Promise<RegionPrices[]> {
    const base64 = this.#stored()?.binaryData?.[key]
    if (base64 === undefined) return []
    try {
      return await decodePrices(Buffer.from(base64, "base64"))
    } catch (err) {
      if (!(err instanceof RangeError)) throw err
      this.#options.logger.warn({ err, key }, "prices that can't be read are replaced")
      return []
    }
  }

  #stored(): ConfigMap | undefined {
    const { stored, systemNamespace: namespace } = this.#options
    return stored.store.get({ namespace, name: PRICES_CONFIG_MAP })
  }

  #timeOf({ key }: Feed): string | undefined {
    return this.#stored()?.data?.[timeKey(key)]
  }

  #report(feed: Feed, error: unknown): void {
    const { systemNamespace: namespace, recorder, logger } = this.#options
    const { cloud, prices } = feed
    const since = this.#timeOf(feed)
    const fallback = since === undefined ? "the price list" : `the prices of ${since}`
    const why = error instanceof Error ? error.message : String(error)
    logger.warn({ err: error, cloud, prices, since }, "not all prices could be refreshed")
    recorder.record(
      { apiVersion: "v1", kind: "ConfigMap", metadata: { name: PRICES_CONFIG_MAP, namespace } },
      {
        type: "Warning",
        reason: "PricesNotRefreshed",
        message: `not all ${prices} prices of ${cloud} could be refreshed; for the others routing uses ${fallback}: ${why}`,
      },
    )
  }
}

/** Returns the key of the time at which a feed was last read. */
function timeKey(key: string): string {
  return `${key}.time`
}

function feedsOf({ providers, hours }: PriceRefresherOptions): Feed[] {
  return Object.entries(providers).flatMap(([name, { prices: readers }]) =>
    (["list", "market"] as const).flatMap((prices) => {
      const read = readers?.[prices]
      const seconds = hours[prices] * 3600
      if (read === undefined || seconds === 0) return []
      return [{ key: `${name}.${prices}`, cloud: name as ConnectionType, prices, read, seconds }]
    }),
  )
}
