import type { Principal } from "../../../core/identity/principal.ts"
import type { Advisor } from "../../../market/advice/advisor.ts"
import { namedSchema, pageSchema } from "../../http/json-schema.ts"
import { filter, paging } from "../../http/query.ts"
import { json, routeDeclarer } from "../../http/route.ts"
import type { JobServices } from "../jobs/routes.ts"
import { identityOf, RunGroups } from "./groups.ts"
import { type AdviceRecord, AdviceSchema, toAdviceRecord } from "./schema.ts"

export interface AdviceServices extends Pick<JobServices, "jobsOf" | "cronJobIdOf" | "arrayIdOf" | "creatorOf"> {
  advise: Advisor
}

const ADVICE = namedSchema("Advice", AdviceSchema, {
  kind: "cronjob",
  id: "5ea07726-efd2-42ec-a095-6d7674666e31",
  name: "nightly",
  latest_job: "nightly-29671380",
  runs: 12,
  reason:
    "peak 0.3 of 4 vCPUs and 2.7 of 15.5 GiB in 12 runs: with cpu 0.4 and memory 3.5Gi t4g.medium instead of m7g.xlarge, " +
    "$0.045 instead of $0.17/h, about $31 a month. Peaks shorter than 5 s are unseen.",
  current: {
    cloud: "aws",
    region: "us-east-1",
    instance_type: "m7g.xlarge",
    provisioning: "onDemand",
    hourly_price_usd: 0.1632,
    total_usd_per_hour: 0.17,
    resources: { cpu: 4, memory: "12Gi", gpu: null, disk: null },
  },
  advised: {
    cloud: "aws",
    region: "us-east-1",
    instance_type: "t4g.medium",
    provisioning: "onDemand",
    hourly_price_usd: 0.0336,
    total_usd_per_hour: 0.045,
    resources: { cpu: 0.4, memory: "3.5Gi", gpu: null, disk: null },
  },
  saving_usd_per_month: 31.25,
  saving_percent: 73.5,
} satisfies AdviceRecord)
const LIST = pageSchema("AdviceList", "advice", ADVICE)

const route = routeDeclarer<Principal, AdviceServices>({ tag: "costs" })

export const adviceRoutes = [
  route("GET /advice", {
    id: "listAdvice",
    summary: "List smaller resources with which measured jobs would cost less, the largest saving first.",
    role: "viewer",
    query: {
      cronjob: filter("Id or name of a cronjob: only advice about it. Empty: any."),
      array: filter("Id or name of an array: only advice about it. Empty: any."),
      ...paging(),
    },
    responses: { 200: json(LIST, "A page of advice. Berth applies none by itself.") },
    handle: async ({ query, principal }, services) => {
      const { cronjob, array, limit, offset } = query
      const all = await adviceOf(principal, services, {
        cronJob: cronjob && (await services.cronJobIdOf(principal, cronjob)),
        array: array && (await services.arrayIdOf(principal, array)),
      })
      return { body: { advice: all.slice(offset, offset + limit), total: all.length, limit, offset } }
    },
  }),
]

/** Returns all advice of a project, the largest saving first. @param by what created the jobs; default: any */
async function adviceOf(
  principal: Principal,
  { jobsOf, creatorOf, advise }: AdviceServices,
  by: { cronJob: string | undefined; array: string | undefined },
): Promise<AdviceRecord[]> {
  const jobs = jobsOf(principal)
  const groups = new RunGroups()
  jobs.visitMeasured(by, (match) => groups.add(match))
  const known = groups.ready.flatMap((group) => {
    const latest = jobs.at(group.newestKey)
    const identity = latest && identityOf(group, latest, group.origin && creatorOf(principal, group.origin))
    return latest === undefined || identity === undefined ? [] : [{ identity, latest, runs: group.runs }]
  })
  const found = await advise(principal.project.namespace, known)
  return found
    .map(({ group: { identity, latest }, advice }) =>
      toAdviceRecord(identity, { name: latest.metadata.name, resources: latest.spec.resources }, advice),
    )
    .sort((a, b) => b.saving_usd_per_month - a.saving_usd_per_month || (a.name < b.name ? -1 : 1))
}
