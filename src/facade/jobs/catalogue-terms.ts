import type { TSchema } from "typebox"
import { GpuSchema, JobSpecSchema } from "../../apis/job.ts"
import { type Fault, faultsOf } from "../../apis/validate.ts"
import type { Catalogue } from "../../router/catalogue.ts"
import { type CatalogueTerms, catalogueFaults } from "../../router/faults.ts"

/** Finds what of a job nobody sells. */
export type CatalogueCheck = (terms: CatalogueTerms) => Fault[]

/**
 * Checks against the present catalogue; against an empty one (no price list has been read) only the clouds' names.
 * @param clouds those that this installation can use
 */
export function catalogueCheck(current: () => Catalogue, clouds: readonly string[]): CatalogueCheck {
  return ({ cloud, ...others }) => {
    const catalogue = current()
    const terms = { ...(cloud !== undefined && { cloud }), ...(catalogue.size > 0 && others) }
    return catalogueFaults(terms, catalogue, clouds)
  }
}

/** What of a body, of whatever shape, the catalogue can judge: what the schema refuses is not looked up. */
export function termsOf({ cloud, region, resources }: Body): CatalogueTerms {
  const { cloud: clouds, region: regions } = JobSpecSchema.properties
  const model = memberOf(memberOf(resources, "gpu"), "model")
  return {
    ...(isOneOrSeveral(clouds, cloud) && { cloud }),
    ...(isOneOrSeveral(regions, region) && { region }),
    ...(isModel(model) && { resources: { gpu: { model } } }),
  }
}

interface Body {
  readonly cloud?: unknown
  readonly region?: unknown
  readonly resources?: unknown
}

function isOneOrSeveral(several: TSchema, value: unknown): value is string | string[] {
  return value !== undefined && faultsOf(several, typeof value === "string" ? [value] : value).length === 0
}

function isModel(value: unknown): value is string {
  return value !== undefined && faultsOf(GpuSchema.properties.model, value).length === 0
}

function memberOf(value: unknown, key: string): unknown {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>)[key] : undefined
}
