import type { Catalogue } from "./catalogue.ts"
import { describeOffer, explainChoice, explainRanking, explainShortfall, usd } from "./explain.ts"
import type { Requirements } from "./requirements.ts"
import { type Payer, type RankedPlacement, type RouteContext, route } from "./route.ts"
import type { Shortfall } from "./shortfall.ts"

/** What would become of a job if it were submitted now. */
export interface Plan<P extends Payer = Payer> {
  /** `placeable`: a VM would be asked for at once. `noOffer`: the job would fail. Else it would wait, for that. */
  verdict: "placeable" | "noOffer" | "noConnection" | "overCaps" | "resting"
  /** What would be tried, first choice first. */
  placements: RankedPlacement<P>[]
  /** US dollars, of the first choice. */
  estimatedCostUsd?: number
  /** For people: why this one is chosen, or what stands in the way. */
  message: string
  /** For people: one line for each placement. */
  ranking: string[]
}

/** Plans a job without doing anything. Pure; a dry run shows it. */
export function planOf<P extends Payer>(
  requirements: Requirements,
  catalogue: Catalogue,
  context: RouteContext<P>,
): Plan<P> {
  const routing = route(requirements, catalogue, context)
  const { placements, shortfall } = routing
  const [best] = placements
  if (best !== undefined) {
    const message = `${describeOffer(best.offer)}: ${explainChoice(routing)}; expected to cost ${usd(best.totalUsd)}`
    const ranking = explainRanking(routing)
    return { verdict: "placeable", placements, estimatedCostUsd: best.totalUsd, message, ranking }
  }
  if (shortfall === undefined) throw new Error("a routing without placements has a shortfall")
  return { ...obstacle(shortfall, requirements), placements, ranking: [] }
}

function obstacle(shortfall: Shortfall, requirements: Requirements): Pick<Plan, "verdict" | "message"> {
  const { fitting, unconnected, resting, overCaps } = shortfall
  if (fitting === 0) return { verdict: "noOffer", message: explainShortfall(shortfall, requirements) }
  if (resting.offers > 0) {
    const until = resting.until === undefined ? "" : ` until ${resting.until.toISOString()} at least`
    return { verdict: "resting", message: `all ${resting.offers} fitting offers rest after they refused${until}` }
  }
  if (overCaps.offers > 0) {
    const cheapest = usd(overCaps.cheapestHourlyUsd ?? 0)
    return {
      verdict: "overCaps",
      message: `the project's caps leave no room for the cheapest fitting offer (${cheapest}/h)`,
    }
  }
  const kinds = unconnected.join(" or ")
  const message = `${fitting} offers fit, but the project has no Ready connection for them: add one of type ${kinds}`
  return { verdict: "noConnection", message }
}
