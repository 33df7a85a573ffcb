import { diskSizes } from "../../../core/apis/disk.ts"
import { quote } from "../../../core/apis/field-error.ts"
import { LIMITS } from "../../../core/apis/field-limits.ts"
import { type JobSpec, PROVISIONINGS } from "../../../core/apis/job.ts"
import { ARCHITECTURES } from "../../../core/apis/offer.ts"
import { sumOfParts } from "../../../core/apis/price.ts"
import { SIZE_PATTERN } from "../../../core/apis/schema.ts"
import type { Principal } from "../../../core/identity/principal.ts"
import { toOwner } from "../../../core/records/owner.ts"
import type { OwnOffer } from "../../../market/placement/machines.ts"
import { matchingOffers } from "../../../market/placement/offers.ts"
import type { Catalogue } from "../../../market/router/catalogue.ts"
import { priceDatesOf } from "../../../market/router/price-dates.ts"
import { namedSchema } from "../../http/json-schema.ts"
import { invalidRequest } from "../../http/problem.ts"
import { choice, paging, type QueryParameter, type QueryValues } from "../../http/query.ts"
import { json, routeDeclarer } from "../../http/route.ts"
import { toMachineRecord } from "../jobs/plan.ts"
import { checkSubmission, type SubmissionContext, toJobSpec } from "../jobs/submission.ts"
import { type OfferList, OfferListSchema } from "./schema.ts"

export interface OfferServices {
  /** Returns the current offers of clouds. */
  catalogue: () => Catalogue
  /** Returns the machines that a project's jobs may run on. */
  ownMachinesOf: (namespace: string) => readonly OwnOffer[]
  /** Check against the current catalogue. */
  catalogueErrorsIn: (namespace: string) => SubmissionContext["catalogueErrors"]
  now: () => Date
}

/** Declares a parameter with one text. An empty value means that it is omitted. */
function text(schema: object, description: string): QueryParameter<string | undefined> {
  return {
    schema: { type: "string", ...schema },
    description,
    read: (query, name) => query.one(name) || undefined,
  }
}

/** Declares a parameter with several texts. */
function texts(items: object, maxItems: number, description: string): QueryParameter<string[]> {
  return {
    schema: { type: "array", maxItems, items: { type: "string", ...items } },
    description,
    read: (query, name) => query.all(name).filter(Boolean),
  }
}

const CPU: QueryParameter<number | undefined> = {
  schema: { type: "number", minimum: 0.001, maximum: 9999, multipleOf: 0.001 },
  description: "Minimum number of vCPUs. Default 1.",
  read: (query, name) => {
    const given = query.one(name)
    if (given === undefined) return undefined
    const value = Number(given)
    if (given.trim() !== "" && Number.isFinite(value)) return value
    query.error(name, `must be a number, not "${given.slice(0, 40)}"`)
    return undefined
  },
}

const GPU: QueryParameter<string | undefined> = {
  schema: { type: "string", format: "gpu" },
  description:
    "GPU memory in total, such as 24Gi; or a model, such as L4; or a model with a number of cards (L4:2) or memory (A100:80Gi).",
  read: (query, name) => {
    const given = query.one(name)
    if (given === undefined || !/^:|:$/.test(given)) return given || undefined
    query.error(
      name,
      `must be a model, a colon, and a number of cards or a size, such as L4:2 or A100:80Gi, not ${quote(given)}`,
    )
    return undefined
  },
}

const SIZE = { pattern: `^$|${SIZE_PATTERN}` }
const DISK = { pattern: `^$|${diskSizes("64Ti").pattern}` }

/** Parameters. Their values are checked as the fields of a job. */
function parameters(clouds: readonly string[]) {
  return {
    gpu: GPU,
    cpu: CPU,
    memory: text(SIZE, "Minimum memory of the container, such as 16Gi."),
    disk: text(DISK, "Minimum size of the disk: a whole number of Gi or Ti from 10Gi to 64Ti, such as 200Gi."),
    region: texts({ format: "region" }, LIMITS.regions, "Region or group of regions; may be repeated."),
    cloud: texts({ enum: clouds }, LIMITS.clouds, "Cloud; may be repeated."),
    architecture: choice(ARCHITECTURES),
    provisioning: choice(PROVISIONINGS, "onDemand"),
    ...paging({ defaultLimit: 20, maxLimit: 200 }),
  }
}

type Parameters = QueryValues<ReturnType<typeof parameters>>

const route = routeDeclarer<Principal, OfferServices>({ tag: "offers" })

/** @param clouds the clouds that a job may name */
export function offerRoutes(clouds: readonly string[]) {
  return [
    route("GET /offers", {
      id: "listOffers",
      summary: "List the cheapest machines for requirements, with the project's own. No connection is needed.",
      role: "viewer",
      query: parameters(clouds),
      responses: { 200: json(LIST, "A page of offers, best first.") },
      handle: ({ query, principal }, services) => {
        const own = services.ownMachinesOf(principal.project.namespace)
        const search = { spec: specOf(query, principal, services), now: services.now() }
        const { limit, offset, architecture } = query
        const found = matchingOffers({ ...search, architecture, limit, offset }, services.catalogue(), own)
        const { offers, matching, message = null } = found
        const records = offers.map(({ offer, prices, whyNotNow = null }) => ({
          ...toMachineRecord(offer),
          total_usd_per_hour: sumOfParts(prices),
          unavailable: whyNotNow,
        }))
        const { cloud } = query
        const price_dates = priceDatesOf(services.catalogue().table).filter(
          (dates) => cloud.length === 0 || cloud.includes(dates.cloud),
        )
        return { body: { offers: records, total: matching, limit, offset, price_dates, message } }
      },
    }),
  ]
}

/** Returns the spec of a job with these requirements. @throws Problem 400 */
function specOf(query: Parameters, { project }: Principal, { catalogueErrorsIn }: OfferServices): JobSpec {
  const { gpu, cpu, memory, disk, region, cloud, provisioning } = query
  const resources = { cpu, memory, disk, gpu: gpu === undefined ? undefined : gpuOf(gpu) }
  const given = Object.fromEntries(Object.entries(resources).filter(([, value]) => value !== undefined))
  const body = {
    // A spec needs an image, which isn't a requirement for a machine.
    image: "any",
    provisioning,
    ...(Object.keys(given).length > 0 && { resources: given }),
    ...(region.length > 0 && { region }),
    ...(cloud.length > 0 && { cloud }),
  }
  const checked = checkSubmission(body, { ...toOwner(project), catalogueErrors: catalogueErrorsIn(project.namespace) })
  if ("submission" in checked) return toJobSpec(checked.submission)
  throw invalidRequest(
    checked.errors.map(({ detail }) => ({ pointer: "", detail })),
    "The query",
  )
}

const SIZE_OF_GPU = new RegExp(SIZE_PATTERN)

/** Returns the GPU of a job for `24Gi`, `L4`, `L4:2` or `A100:80Gi`. The check of a job finds its errors. */
function gpuOf(value: string): object | string {
  const [model = "", amount] = value.split(/:(?=[^:]*$)/)
  if (amount === undefined) return /^\d/.test(value) ? value : { model: value }
  return SIZE_OF_GPU.test(amount)
    ? { model, vram: amount }
    : { model, count: /^\d+$/.test(amount) ? Number(amount) : amount }
}

const LIST = namedSchema("OfferList", OfferListSchema, {
  offers: [
    {
      provider: "gcp",
      region: "europe-west4",
      zone: null,
      instance_type: "g2-standard-4",
      provisioning: "onDemand",
      hourly_price_usd: 0.7787,
      price_date: "2026-10-01",
      cpu: 4,
      memory: "16Gi",
      architecture: "amd64",
      gpu: { vram: "24Gi", count: 1, model: "L4" },
      total_usd_per_hour: 0.7902,
      unavailable: null,
    },
  ],
  total: 12,
  limit: 20,
  offset: 0,
  price_dates: [
    { cloud: "gcp", provisioning: "onDemand", date: "2026-10-01", oldest: "2026-05-20" },
    { cloud: "gcp", provisioning: "spot", date: "2026-10-01", oldest: "2026-05-20" },
  ],
  message: null,
} satisfies OfferList)
