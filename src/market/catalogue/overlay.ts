import { load, YAMLException } from "js-yaml"
import Type, { type Static, type TSchema } from "typebox"
import { LIMITS } from "../../core/apis/field-limits.ts"
import { ARCHITECTURES, OFFER_PROVISIONINGS, OfferSchema } from "../../core/apis/offer.ts"
import { ALLOWED, Int, StringEnum, Text } from "../../core/apis/schema.ts"
import { type FieldError, findErrors } from "../../core/apis/validate.ts"

const PATTERN = { minLength: 1, [ALLOWED]: "a name, or a pattern with * for any letters" }

/** Offers that a rule applies to. An absent field matches anything; `*` stands for any letters. */
const SELECTOR = {
  cloud: Type.Optional(Text(32, "The cloud.", PATTERN)),
  region: Type.Optional(Text(LIMITS.region, "The region, or a group of regions such as eu.", PATTERN)),
  family: Type.Optional(Text(64, "The family of machine types, such as m7i, n2 or Das_v5.", PATTERN)),
  instanceType: Type.Optional(Text(128, "The machine type.", PATTERN)),
  provisioning: Type.Optional(StringEnum(OFFER_PROVISIONINGS, { description: "Provisioning of the offer." })),
}

const DiscountSchema = Type.Object({
  ...SELECTOR,
  factor: Type.Number({ minimum: 0, maximum: 10, description: "Factor of the price: 0.82 is 18 % off." }),
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
  architecture: Type.Optional(
    StringEnum(ARCHITECTURES, { description: "Required for a machine type that is not in the price list." }),
  ),
  cpu: Type.Optional(
    Type.Number({ minimum: 0, description: "Required for a machine type that is not in the price list." }),
  ),
  memoryGib: Type.Optional(
    Type.Number({ minimum: 0, description: "Required for a machine type that is not in the price list." }),
  ),
  gpu,
  minimumBilledSeconds: Type.Optional(Int({ description: "Shortest billed time, seconds; default 60." })),
})

const { cloud: ofCloud, region: inRegion, provisioning: ofProvisioning } = SELECTOR
const DiskRuleSchema = Type.Object({
  cloud: ofCloud,
  region: inRegion,
  type: Type.Optional(Text(64, "The cloud's name of the disk type, such as gp3.", PATTERN)),
  gibMonthUsd: Type.Number({ minimum: 0, description: "Price of a GiB, USD a month." }),
})
const AddressRuleSchema = Type.Object({
  cloud: ofCloud,
  region: inRegion,
  provisioning: ofProvisioning,
  hourlyPriceUsd: Type.Number({ minimum: 0, description: "Price of a public IPv4 address, USD per hour." }),
})

export type Discount = Static<typeof DiscountSchema>
export type Exclusion = Static<typeof ExclusionSchema>
/** Machine at an own price: a reserved one, or a type of the price list at another price. */
export type OwnOffer = Static<typeof OwnOfferSchema>

/** Own price of disks. */
export type DiskRule = Static<typeof DiskRuleSchema>
/** Own price of public addresses. */
export type AddressRule = Static<typeof AddressRuleSchema>

/** A rule and its position in its list, from 0. */
export interface Numbered<T> {
  index: number
  rule: T
}

/** Changes that the operator of an installation makes to the price list. */
export interface Overlay {
  offers: readonly Numbered<OwnOffer>[]
  discounts: readonly Numbered<Discount>[]
  exclusions: readonly Numbered<Exclusion>[]
  disks: readonly Numbered<DiskRule>[]
  addresses: readonly Numbered<AddressRule>[]
}

const KEYS: readonly (keyof Overlay)[] = ["offers", "discounts", "exclusions", "disks", "addresses"]

/**
 * Reads an overlay from a ConfigMap's data: the keys `offers`, `discounts`, `exclusions`, `disks` and
 * `addresses`, each a list in YAML. An invalid rule is skipped and reported, and the others apply: a mistake elsewhere must not disable an exclusion.
 */
export function parseOverlay(data: Readonly<Record<string, string>> = {}): { overlay: Overlay; errors: FieldError[] } {
  const errors: FieldError[] = []
  for (const key of Object.keys(data).filter((name) => !(KEYS as readonly string[]).includes(name))) {
    errors.push({
      pointer: `/${key}`,
      detail: `unknown key ${key}: the known keys are ${KEYS.join(", ")}`,
    })
  }
  const overlay = {
    offers: rulesOf<OwnOffer>("offers", data["offers"], OwnOfferSchema, errors),
    discounts: rulesOf<Discount>("discounts", data["discounts"], DiscountSchema, errors),
    exclusions: rulesOf<Exclusion>("exclusions", data["exclusions"], ExclusionSchema, errors),
    disks: rulesOf<DiskRule>("disks", data["disks"], DiskRuleSchema, errors),
    addresses: rulesOf<AddressRule>("addresses", data["addresses"], AddressRuleSchema, errors),
  }
  return { overlay, errors }
}

function rulesOf<T>(key: string, text: string | undefined, schema: TSchema, errors: FieldError[]): Numbered<T>[] {
  return listOf(key, text, errors).flatMap((item, index) => {
    const found = findErrors(schema, item)
    for (const { pointer, detail } of found) {
      errors.push({ pointer: `/${key}/${index}${pointer}`, detail: `${key}[${index}]: ${detail}` })
    }
    return found.length === 0 ? [{ index, rule: item as T }] : []
  })
}

function listOf(key: string, text: string | undefined, errors: FieldError[]): unknown[] {
  if (text === undefined || text.trim() === "") return []
  try {
    const value = load(text)
    if (Array.isArray(value)) return value
    errors.push({ pointer: `/${key}`, detail: `${key} must be a list in YAML: begin each item with "- "` })
  } catch (error) {
    if (!(error instanceof YAMLException)) throw error
    const place = error.mark === undefined ? "" : ` (line ${error.mark.line + 1}, column ${error.mark.column + 1})`
    errors.push({ pointer: `/${key}`, detail: `${key} is not valid YAML${place}: ${error.reason}` })
  }
  return []
}
