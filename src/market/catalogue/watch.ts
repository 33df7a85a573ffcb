import type { Logger } from "../../core/apis/logger.ts"
import type { FieldError } from "../../core/apis/validate.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { CONFIG_MAPS, type ConfigMap } from "../../core/kube/core.ts"
import type { EventRecorder } from "../../core/kube/events.ts"
import { Reflector } from "../../core/kube/reflector.ts"
import { CATALOGUE_CONFIG_MAP, LiveCatalogue } from "./live.ts"
import type { Offers } from "./offers.ts"
import { decodePrices, PRICES_CONFIG_MAP, type RegionPrices } from "./stored-prices.ts"

export interface CatalogueWatchOptions {
  client: KubeClient
  systemNamespace: string
  catalogue: LiveCatalogue
  /** Emits events about errors. Absent if another program emits them. */
  recorder?: Pick<EventRecorder, "record">
  logger: Logger
}

/** Reflectors that keep a catalogue current while they run. */
export interface CatalogueWatches {
  rules: Reflector<ConfigMap>
  prices: Reflector<ConfigMap>
}

/** Watches the ConfigMaps of a catalogue; undefined for one that can't change. */
export function catalogueWatches(
  offers: Offers,
  options: Omit<CatalogueWatchOptions, "catalogue">,
): CatalogueWatches | undefined {
  if (!(offers instanceof LiveCatalogue)) return undefined
  const live = { ...options, catalogue: offers }
  return { rules: watchCatalogue(live), prices: watchPrices(live) }
}

/**
 * Keeps the catalogue equal to the ConfigMap of the system namespace while the returned reflector runs. Errors in it
 * are logged and emitted as an event of the ConfigMap.
 */
export function watchCatalogue(options: CatalogueWatchOptions): Reflector<ConfigMap> {
  const { catalogue, logger } = options
  const reflector = reflectorOf(CATALOGUE_CONFIG_MAP, options)
  reflector.onChange(({ current }) => {
    catalogue
      .change(current?.data)
      .then((errors) => report(current, errors, options))
      .catch((err: unknown) =>
        logger.error({ err }, "the ConfigMap of the catalogue could not be applied; the catalogue stays unchanged"),
      )
  })
  return reflector
}

/**
 * Keeps the catalogue's prices equal to the ConfigMap of refreshed prices while the returned reflector runs. Rejected
 * prices are logged and emitted as an event of the ConfigMap.
 */
export function watchPrices(options: CatalogueWatchOptions): Reflector<ConfigMap> {
  const { catalogue, recorder, logger } = options
  const reflector = reflectorOf(PRICES_CONFIG_MAP, options)
  let last: Promise<void> = Promise.resolve()
  const apply = async (current: ConfigMap | undefined): Promise<void> => {
    const prices = await pricesIn(current, logger)
    const errors = await catalogue.refresh(prices)
    logger.info(
      { regions: prices.length, offers: catalogue.current().size },
      "the prices of the catalogue have changed",
    )
    for (const { pointer, detail } of errors) logger.warn({ pointer }, detail)
    if (current === undefined || errors.length === 0) return
    const message = errors.map(({ detail }) => detail).join("; ")
    recorder?.record(namedKind(current), { type: "Warning", reason: "PricesRefused", message })
  }
  reflector.onChange(({ current }) => {
    last = last
      .then(() => apply(current))
      .catch((err: unknown) =>
        logger.error({ err }, "the refreshed prices of the ConfigMap could not be applied; prices stay unchanged"),
      )
  })
  return reflector
}

/** Returns the prices of the ConfigMap. Unreadable ones are skipped and logged. */
async function pricesIn(configMap: ConfigMap | undefined, logger: Logger): Promise<RegionPrices[]> {
  const read = Object.entries(configMap?.binaryData ?? {}).map(async ([key, base64]) => {
    try {
      return await decodePrices(Buffer.from(base64, "base64"))
    } catch (err) {
      if (!(err instanceof RangeError)) throw err
      logger.warn({ err, key }, `ConfigMap ${PRICES_CONFIG_MAP}: unreadable prices are skipped`)
      return []
    }
  })
  return (await Promise.all(read)).flat()
}

function reflectorOf(
  name: string,
  { client, systemNamespace, logger }: Pick<CatalogueWatchOptions, "client" | "systemNamespace" | "logger">,
): Reflector<ConfigMap> {
  const fieldSelector = `metadata.name=${name}`
  return new Reflector<ConfigMap>({ client, resource: CONFIG_MAPS, namespace: systemNamespace, fieldSelector, logger })
}

/** The items of a list have no kind. */
function namedKind(configMap: ConfigMap): ConfigMap {
  return { ...configMap, apiVersion: "v1", kind: "ConfigMap" }
}

function report(
  configMap: ConfigMap | undefined,
  errors: readonly FieldError[],
  { catalogue, recorder, logger }: Pick<CatalogueWatchOptions, "catalogue" | "recorder" | "logger">,
): void {
  logger.info({ offers: catalogue.current().size, errors: errors.length }, "the catalogue has changed")
  for (const { pointer, detail } of errors) logger.warn({ pointer }, `ConfigMap ${CATALOGUE_CONFIG_MAP}: ${detail}`)
  if (configMap === undefined || errors.length === 0) return
  const message = `these rules are skipped or have no effect: ${errors.map(({ detail }) => detail).join("; ")}`
  recorder?.record(namedKind(configMap), { type: "Warning", reason: "InvalidRule", message })
}
