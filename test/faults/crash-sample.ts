import { createHash } from "node:crypto"
import type { Fault, Point } from "./crash-gate.ts"
import type { Strike } from "./crash-play.ts"

/** What deaths and lost answers there may be at a call. A read whose answer is lost is one that is made again. */
export function deathsAt({ effect }: Point): Fault[] {
  return effect === "read" ? ["before"] : ["before", "after", "lost"]
}

/** Where it matters that a leader stands still: before an act, and where it asks a cloud. */
export function pausesAt({ call, effect }: Point): Fault[] {
  const isAct = effect !== "read" && !isBackground(call)
  return isAct || call.startsWith("cloud ") ? ["pause"] : []
}

/** What an operator asks as it starts, whatever there is. */
export function isBeginning(call: string): boolean {
  return /^(pages|watch) |^get (Secret|Lease)$/.test(call)
}

/** What nothing else depends on, and what is made again by the clock. */
function isBackground(call: string): boolean {
  return /Event|Lease/.test(call)
}

/** So many of them, the same for a seed each time. Reads and events are left to the long run. */
export function sampleOf(strikes: readonly Strike[], most: number, seed: string): Strike[] {
  const lot = ({ point, fault }: Strike): string =>
    createHash("sha256")
      .update(JSON.stringify([seed, point.call, point.nth, fault]))
      .digest("hex")
  return strikes
    .filter(({ point }) => point.effect !== "read" && !isBackground(point.call))
    .map((strike) => ({ strike, lot: lot(strike) }))
    .sort((a, b) => (a.lot < b.lot ? -1 : 1))
    .slice(0, most)
    .map(({ strike }) => strike)
}

/** What is done of it in the table of docs/reliability.md. */
export function classOf(strike: Strike): string {
  return isUnderWay(strike) ? "a request to a cloud arrives when another leads already" : CLASSES[strike.fault]
}

/** The leader stands still when the fence has been passed, and the request is all but sent. */
export function isUnderWay({ point, fault }: Strike): boolean {
  return fault === "pause" && point.effect === "cloud" && !point.call.startsWith("cloud ")
}

const CLASSES: Readonly<Record<Fault, string>> = {
  before: "the operator dies before a call",
  after: "the operator dies after a call's effect",
  lost: "the answer to a call is lost",
  pause: "the leader stands still before a call, and continues when another leads",
}
