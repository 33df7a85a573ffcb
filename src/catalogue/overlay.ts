import { load, YAMLException } from "js-yaml"
import Type, { type Static, type TSchema } from "typebox"
import { LIMITS } from "../apis/limits.ts"
import { ARCHITECTURES, OFFER_PROVISIONINGS, OfferSchema } from "../apis/offer.ts"
import { ALLOWED, Int, StringEnum, Text } from "../apis/schema.ts"
import { type Fault, faultsOf } from "../apis/validate.ts"

const PATTERN = { minLength: 1, [ALLOWED]: "a name, or a pattern with * for any letters" }

/** Which offers a rule is about. What is absent matches anything; `*` stands for any letters. */
const SELECTOR = {
  cloud: Type.Optional(Text(32, "The cloud.", PATTERN)),
  region: Type.Optional(Text(LIMITS.region, "The region, or a group of regions such as eu.", PATTERN)),
  family: Type.Optional(Text(64, "The family of machine types, such as m7i, n2 or Das_v5.", PATTERN)),
  instanceType: Type.Optional(Text(128, "The machine type.", PATTERN)),
  provisioning: Type.Optional(StringEnum(OFFER_PROVISIONINGS, { description: "How it is bought." })),
}

const DiscountSchema = Type.Object({
  ...SELECTOR,
  factor: Type.Number({ minimum: 0, maximum: 10, description: "What prices are multiplied by: 0.82 is 18 % off." }),
})
const ExclusionSchema = Type.Object(SELECTOR, { minProperties: 1 })
const { cloud, region, zone, instanceType, gpu, hourlyPriceUsd } = OfferSchema.properties
const OwnOfferSchema = Type.Object({
  cloud,
  region,
  zone,
  instanceType,
  hourlyPriceUsd,
  provisioning: Type.Optional(StringEnum(OFFER_PROVISIONINGS, { description: "Default: onDemand." })),
  architecture: Type.Optional(StringEnum(ARCHITECTURES, { description: "Needed for a machine type of one's own." })),
  cpu: Type.Optional(Type.Number({ minimum: 0, description: "Needed for a machine type of one's own." })),
  memoryGib: Type.Optional(Type.Number({ minimum: 0, description: "Needed for a machine type of one's own." })),
  gpu,
  minimumBilledSeconds: Type.Optional(Int({ description: "The shortest time that is billed; default 60." })),
})

export type Discount = Static<typeof DiscountSchema>
export type Exclusion = Static<typeof ExclusionSchema>
/** A machine at a price of one's own: a reserved one, or a type that the price list has, at another price. */
export type OwnOffer = Static<typeof OwnOfferSchema>

/** A rule and where it stands in its list, from 0. */
export interface Numbered<T> {
  index: number
  rule: T
}

/** What whoever runs Berth changes about the price list. */
export interface Overlay {
  offers: readonly Numbered<OwnOffer>[]
  discounts: readonly Numbered<Discount>[]
  exclusions: readonly Numbered<Exclusion>[]
}

const KEYS: readonly (keyof Overlay)[] = ["offers", "discounts", "exclusions"]

/**
 * Reads an overlay from a ConfigMap's data: the keys `offers`, `discounts` and `exclusions`, each a list in YAML. One
 * faulty rule is left out and told, the others hold: an exclusion must not lapse by a slip elsewhere.
 */
export function parseOverlay(data: Readonly<Record<string, string>> = {}): { overlay: Overlay; faults: Fault[] } {
  const faults: Fault[] = []
  for (const key of Object.keys(data).filter((name) => !(KEYS as readonly string[]).includes(name))) {
    faults.push({
      pointer: `/${key}`,
      detail: `${key} is no known key: known are ${KEYS.join(", ")}`,
    })
  }
  const overlay = {
    offers: rulesOf<OwnOffer>("offers", data["offers"], OwnOfferSchema, faults),
    discounts: rulesOf<Discount>("discounts", data["discounts"], DiscountSchema, faults),
    exclusions: rulesOf<Exclusion>("exclusions", data["exclusions"], ExclusionSchema, faults),
  }
  return { overlay, faults }
}

function rulesOf<T>(key: string, text: string | undefined, schema: TSchema, faults: Fault[]): Numbered<T>[] {
  return listOf(key, text, faults).flatMap((item, index) => {
    const found = faultsOf(schema, item)
    for (const { pointer, detail } of found) {
      faults.push({ pointer: `/${key}/${index}${pointer}`, detail: `${key}[${index}]: ${detail}` })
    }
    return found.length === 0 ? [{ index, rule: item as T }] : []
  })
}

function listOf(key: string, text: string | undefined, faults: Fault[]): unknown[] {
  if (text === undefined || text.trim() === "") return []
  try {
    const value = load(text)
    if (Array.isArray(value)) return value
    faults.push({ pointer: `/${key}`, detail: `${key} must be a list in YAML: begin each item with "- "` })
  } catch (error) {
    if (!(error instanceof YAMLException)) throw error
    const place = error.mark === undefined ? "" : ` (line ${error.mark.line + 1}, column ${error.mark.column + 1})`
    faults.push({ pointer: `/${key}`, detail: `${key} is no YAML${place}: ${error.reason}` })
  }
  return []
}
