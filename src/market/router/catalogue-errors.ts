import { type FieldError, nearest } from "../../core/apis/field-error.ts"
import type { Catalogue } from "./catalogue.ts"
import { isModel, isNvidia, parseModel } from "./gpu-models.ts"

/** The parts of a job that only a catalogue can judge; REST writes one cloud or region as a string, too. */
export interface CatalogueTerms {
  cloud?: string | readonly string[]
  region?: string | readonly string[]
  resources?: { gpu?: { model?: string } }
}

/** Maximum number of regions in a message. Beyond it the message lists groups and the nearest name. */
const MOST_REGIONS_SHOWN = 64

/** Maximum number of unknown regions with a similar name in the message. The search takes 1 ms each. */
const MOST_SUGGESTIONS = 4

/**
 * Returns errors of the names in a job: clouds, regions and GPU models that do not exist, and regions outside its
 * clouds.
 * Each error names the field, the value and what is allowed. The schema checks sizes and shapes.
 * @param clouds clouds of this installation; default: clouds of the catalogue
 */
export function catalogueErrors(
  { cloud, region, resources }: CatalogueTerms,
  catalogue: Catalogue,
  clouds: readonly string[] = catalogue.clouds,
): FieldError[] {
  const wanted = items("cloud", cloud)
  const cloudErrors = wanted.flatMap(({ pointer, value }) => cloudError(pointer, value, clouds))
  const usable = cloudErrors.length > 0 || wanted.length === 0 ? clouds : wanted.map(({ value }) => value)
  const places = {
    catalogue,
    clouds: usable,
    groups: groupsOf(catalogue, usable),
    regions: regionsOf(catalogue, usable),
  }
  const regionErrors = items("region", region)
    .filter(({ value }) => !places.groups.includes(value) && !places.regions.includes(value))
    .map((item, index) => regionError(item, places, index < MOST_SUGGESTIONS))
  const model = resources?.gpu?.model
  return [...cloudErrors, ...regionErrors, ...(model === undefined ? [] : modelError(model, catalogue))]
}

/** Returns the names that a job may give as a region, groups first. */
export function regionNames(catalogue: Catalogue, clouds: readonly string[] = catalogue.clouds): string[] {
  return [...groupsOf(catalogue, clouds), ...regionsOf(catalogue, clouds)]
}

/** Returns the NVIDIA models of the catalogue. */
export function modelNames(catalogue: Catalogue): string[] {
  const models = catalogue.table.machines.flatMap(({ gpu }) => (gpu && isNvidia(gpu.model) ? [gpu.model] : []))
  return [...new Set(models)].sort()
}

function items(field: string, value: string | readonly string[] | undefined) {
  if (value === undefined) return []
  if (typeof value === "string") return [{ pointer: `/${field}`, value }]
  return value.map((item, index) => ({ pointer: `/${field}/${index}`, value: item }))
}

function cloudError(pointer: string, value: string, clouds: readonly string[]): FieldError[] {
  if (clouds.includes(value)) return []
  return [
    {
      pointer,
      detail: `cloud ${quoteValue(value)} is unknown${meant(value, clouds)}; known clouds: ${clouds.join(", ")}`,
    },
  ]
}

/** Places that a job may name. */
interface Places {
  catalogue: Catalogue
  clouds: readonly string[]
  groups: readonly string[]
  regions: readonly string[]
}

function regionError(
  { pointer, value }: { pointer: string; value: string },
  { catalogue, clouds, groups, regions }: Places,
  suggests: boolean,
): FieldError {
  const owners = catalogue.table.regions.filter(({ name }) => name === value).map(({ cloud }) => cloud)
  const named =
    regions.length <= MOST_REGIONS_SHOWN
      ? `the regions ${regions.join(", ")}`
      : `any region of ${clouds.join(", ")} by its own name`
  // The local cloud's region is in no group.
  const allowed = groups.length === 0 ? named : `${groups.join(", ")} and ${named}`
  const what =
    owners.length > 0
      ? `region ${quoteValue(value)} is in ${owners.join(" and ")}, which the job's cloud excludes`
      : `region ${quoteValue(value)} is unknown${suggests ? meant(value, [...groups, ...regions]) : ""}`
  return { pointer, detail: `${what}; allowed: ${allowed}` }
}

function modelError(model: string, catalogue: Catalogue): FieldError[] {
  const wanted = parseModel(model)
  const isOffered = catalogue.table.machines.some(
    ({ gpu }) =>
      gpu && isNvidia(gpu.model) && isModel(wanted, parseModel(gpu.model).base, gpu.vramGib) && gpu.count > 0,
  )
  if (isOffered) return []
  const names = modelNames(catalogue)
  const known = names.length === 0 ? "the catalogue has none" : `known models: ${names.join(", ")}`
  const makers = catalogue.table.machines.flatMap(({ gpu }) =>
    gpu && !isNvidia(gpu.model) ? [gpu.model.split(":")] : [],
  )
  const maker = makers.find(([, name]) => name !== undefined && parseModel(name).base === wanted.base)?.[0]
  const what =
    maker === undefined
      ? `resources.gpu.model ${quoteValue(model)} is unknown${meant(model, cheapestFirst(names, catalogue))}`
      : `resources.gpu.model ${quoteValue(model)} is made by ${maker}, but only NVIDIA GPUs are supported`
  return [{ pointer: "/resources/gpu/model", detail: `${what}; ${known}` }]
}

/** Returns models by their lowest price: of two names that are as near, the cheaper card is meant more often. */
function cheapestFirst(names: readonly string[], { table }: Catalogue): string[] {
  const least = new Map<string, number>()
  for (const [row, usd] of table.hourlyPriceUsd.entries()) {
    const model = table.machines[table.machine[row] as number]?.gpu?.model
    if (model !== undefined) least.set(model, Math.min(usd, least.get(model) ?? Number.POSITIVE_INFINITY))
  }
  return names.toSorted((a, b) => (least.get(a) ?? 0) - (least.get(b) ?? 0))
}

function groupsOf({ groups, table }: Catalogue, clouds: readonly string[]): string[] {
  const regions = table.regions.filter(({ cloud, restricted }) => clouds.includes(cloud) && restricted !== true)
  return groups.filter((group) => regions.some((region) => region.groups.includes(group)))
}

function regionsOf({ table }: Catalogue, clouds: readonly string[]): string[] {
  return [...new Set(table.regions.filter(({ cloud }) => clouds.includes(cloud)).map(({ name }) => name))].sort()
}

function meant(value: string, known: readonly string[]): string {
  const near = nearest(value, known)
  return near === undefined ? "" : ` (did you mean ${near}?)`
}

function quoteValue(value: string): string {
  return JSON.stringify(value)
}
