import { promisify } from "node:util"
import { brotliCompress, brotliDecompress, constants } from "node:zlib"
import Type, { type Static } from "typebox"
import { LIMITS } from "../apis/limits.ts"
import { OFFER_PROVISIONINGS } from "../apis/offer.ts"
import { Int, StringEnum, Text } from "../apis/schema.ts"
import { faultsOf } from "../apis/validate.ts"

/** The ConfigMap in the system namespace that has what clouds said of their prices lately. */
export const PRICES_CONFIG_MAP = "berth-prices"

/** What a cloud's machines cost in one region, bought one way, when it was asked. */
export interface RegionPrices {
  cloud: string
  region: string
  provisioning: "onDemand" | "spot"
  /** When the cloud was asked (RFC 3339). */
  time: string
  /** By machine type, US dollars an hour. */
  prices: ReadonlyMap<string, number>
}

/** How prices are written down: each name of a machine type once, prices in millionths of a US dollar. */
const FileSchema = Type.Object({
  format: Int({ minimum: 1, maximum: 1, description: "Of this file." }),
  cloud: Text(32, "The cloud."),
  instanceTypes: Type.Array(Text(128, "A machine type.")),
  regions: Type.Array(
    Type.Object({
      region: Text(LIMITS.region, "The region."),
      provisioning: StringEnum(OFFER_PROVISIONINGS, { description: "How it is bought." }),
      time: Text(32, "When the cloud was asked.", { format: "date-time" }),
      prices: Type.Array(Int({ minimum: 0, description: "By machine type; 0: not told." })),
    }),
  ),
})

/** Enough for a list of prices: more hardly makes it smaller, and takes seconds. */
const BROTLI = { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } }

/** Writes what one cloud said, compressed: all prices of a cloud are some 100 to 200 kB. */
export async function encodePrices(cloud: string, refreshed: readonly RegionPrices[]): Promise<Uint8Array> {
  const instanceTypes = [...new Set(refreshed.flatMap(({ prices }) => [...prices.keys()]))].sort()
  const regions = refreshed.map(({ region, provisioning, time, prices }) => ({
    region,
    provisioning,
    time,
    prices: instanceTypes.map((type) => Math.round((prices.get(type) ?? 0) * 1e6)),
  }))
  const file: Static<typeof FileSchema> = { format: 1, cloud, instanceTypes, regions }
  return await promisify(brotliCompress)(JSON.stringify(file), BROTLI)
}

/** Reads what `encodePrices` wrote. @throws RangeError when it is something else */
export async function decodePrices(bytes: Uint8Array): Promise<RegionPrices[]> {
  const { cloud, instanceTypes, regions } = await fileIn(bytes)
  return regions.map(({ prices, ...about }) => ({
    cloud,
    ...about,
    prices: new Map(prices.flatMap((price, index) => (price > 0 ? [[instanceTypes[index] ?? "", price / 1e6]] : []))),
  }))
}

async function fileIn(bytes: Uint8Array): Promise<Static<typeof FileSchema>> {
  const file = await promisify(brotliDecompress)(bytes)
    .then((text) => JSON.parse(String(text)) as Static<typeof FileSchema>)
    .catch((cause: unknown) => {
      throw new RangeError("it is no list of prices that was written by Berth", { cause })
    })
  const [fault] = faultsOf(FileSchema, file)
  if (fault !== undefined) throw new RangeError(`it is no list of prices: ${fault.pointer}: ${fault.detail}`)
  return file
}
