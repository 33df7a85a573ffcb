import type { StoredJob } from "../../core/apis/job.ts"
import { jobBudget } from "../placement/budget.ts"
import { type Buckets, type ImageState, type Images, whenVolumesFound } from "../placement/inputs.ts"
import { LaunchLedger } from "../placement/ledger.ts"
import { buildMarket, type MarketSources } from "../placement/market.ts"
import { JOB_DEFAULTS, type JobSettings } from "../placement/settings.ts"
import { type Advice, advise, type RunGroup } from "./advice.ts"
import { LEAST_RUNS, neededResources } from "./needs.ts"

/** Group whose latest run is a whole Job. */
export type MeasuredGroup = RunGroup & { latest: StoredJob }

/** Returns the advice for each group of a namespace's runs; undefined: none. */
export type Advisor = <Group extends MeasuredGroup>(
  namespace: string,
  groups: readonly Group[],
) => Promise<{ group: Group; advice: Advice }[]>

/** Sources of advice: those of a plan. */
type Sources = MarketSources & {
  images?: Images
  buckets?: Buckets
  /** Waits until the scan of all offers may begin. */
  nextTurn: () => Promise<void>
}

/**
 * Returns an advisor that works from a process's caches. It writes nothing. It asks only the registries of images and the
 * accounts of the volumes' connections, and only about groups that ask for more than they need.
 */
export function jobAdvisor(sources: Sources, settings: Partial<JobSettings> = {}): Advisor {
  const effective = { ...JOB_DEFAULTS, ...settings }
  // Advice reserves nothing in it.
  const ledger = new LaunchLedger(sources.launches.store, sources.clock)
  return async (namespace, groups) => {
    const asking = groups.filter(
      ({ latest, runs }) => runs.length >= LEAST_RUNS && neededResources(latest.spec, runs) !== undefined,
    )
    if (asking.length === 0) return []
    const open = buildMarket(namespace, sources, ledger, effective)
    const known = await Promise.all(
      asking.map(async (group) => ({ group, facts: await factsOf(group, namespace, sources) })),
    )
    const found = []
    for (const { group, facts } of known) {
      await sources.nextTurn()
      const advice = facts && advise(group, { ...open, ...facts }, sources.clock.now(), effective)
      if (advice !== undefined) found.push({ group, advice })
    }
    return found
  }
}

/** Returns what a market knows of a group's job; undefined if its buckets are not found, so that it would wait. */
async function factsOf({ latest }: MeasuredGroup, namespace: string, { images, buckets }: Sources) {
  const { spec } = latest
  const [image, volumes] = await Promise.all([
    images?.whenFound(namespace, spec.image),
    buckets && whenVolumesFound(namespace, spec, buckets),
  ])
  if (volumes !== undefined && volumes.kind !== "found") return undefined
  const budget = jobBudget({ spec }, [])
  return { image: imageOf(latest, image), budget, ...(volumes && { buckets: volumes.places }) }
}

/** Returns what is known of an image. If its registry doesn't say for what it is, the machine of the run does. */
function imageOf({ status }: StoredJob, image: ImageState | undefined): ImageState {
  if (image?.state === "known") return image
  const { architecture } = status?.placement?.offer ?? {}
  return { state: "known", architectures: architecture === undefined ? [] : [architecture] }
}
