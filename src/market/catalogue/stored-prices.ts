import { promisify } from "node:util"
import { brotliCompress, brotliDecompress, constants } from "node:zlib"
import Type, { type Static } from "typebox"
import { LIMITS } from "../../core/apis/field-limits.ts"
import { OFFER_PROVISIONINGS } from "../../core/apis/offer.ts"
import { Int, StringEnum, Text } from "../../core/apis/schema.ts"
import { findErrors } from "../../core/apis/validate.ts"

/** ConfigMap in the system namespace with refreshed prices. */
export const PRICES_CONFIG_MAP = "berth-prices"

/** Prices of a cloud's machines in one region, with one kind of provisioning, at one time. */
export interface RegionPrices {
  cloud: string
  region: string
  provisioning: "onDemand" | "spot"
  /** Time at which the prices were read from the cloud (RFC 3339). */
  time: string
  /** US dollars per hour, by machine type. */
  prices: ReadonlyMap<string, number>
}

/** Stored form of prices: each name of a machine type once, prices in millionths of a US dollar. */
const FileSchema = Type.Object({
  format: Int({ minimum: 1, maximum: 1, description: "Format of this file." }),
  cloud: Text(32, "The cloud."),
  instanceTypes: Type.Array(Text(128, "A machine type.")),
  regions: Type.Array(
    Type.Object({
      region: Text(LIMITS.region, "The region."),
      provisioning: StringEnum(OFFER_PROVISIONINGS, { description: "Provisioning of the offers." }),
      time: Text(32, "Time at which the prices were read.", { format: "date-time" }),
      prices: Type.Array(Int({ minimum: 0, description: "By machine type; 0: unknown." })),
    }),
  ),
})

/** Compression level. A higher one takes seconds and hardly reduces the size. */
const BROTLI = { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } }

/** Encodes and compresses the prices of one cloud, which are 100 to 200 kB. */
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

/** Decodes the output of `encodePrices`. @throws RangeError if it is something else */
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
      throw new RangeError("not a price list that Berth wrote", { cause })
    })
  const [error] = findErrors(FileSchema, file)
  if (error !== undefined) throw new RangeError(`not a price list: ${error.pointer}: ${error.detail}`)
  return file
}
