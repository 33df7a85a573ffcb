import { createHash } from "node:crypto"
import { type Fault, HANDS_OVER, type Point, TAKES_OVER } from "./crash-gate.ts"
import type { InjectedFault } from "./crash-run.ts"
import type { Slice } from "./effort.ts"

/** Returns the faults other than pauses that are possible at a call. After a lost answer, a read is only repeated. */
export function deathsAt({ effect }: Point): Fault[] {
  return effect === "read" ? ["before"] : ["before", "after", "lost"]
}

/** Returns `pause` for calls where a paused leader can do violation: before an action, and at requests to a cloud. */
export function pausesAt({ call, effect }: Point): Fault[] {
  const isAct = effect !== "read" && !isBackground(call)
  return isAct || call.startsWith("cloud ") ? ["pause"] : []
}

/** Returns true for calls that every operator makes at its start. */
export function isBeginning(call: string): boolean {
  return /^(pages|watch) |^get (Secret|Lease)$/.test(call)
}

/** Returns true for calls that no other call depends on, and that the clock repeats. */
export function isBackground(call: string): boolean {
  return /Event|Lease/.test(call)
}

/** Returns true for the writes of a takeover: of the predecessor's status, and of its heir's. */
export function isTakeover({ point: { call } }: InjectedFault): boolean {
  return call.endsWith(HANDS_OVER) || call.endsWith(TAKES_OVER)
}

/**
 * Returns the faults of a slice, always the same ones for a seed. Each slice has some of all calls, so it is a sample of
 * all. Together the slices have each fault once.
 */
export function faultsOf({ number, of }: Slice, injections: readonly InjectedFault[], seed: string): InjectedFault[] {
  return injections.filter((injected) => Number.parseInt(lotOf(injected, seed).slice(0, 8), 16) % of === number - 1)
}

function lotOf({ point, fault }: InjectedFault, seed: string): string {
  return createHash("sha256")
    .update(JSON.stringify([seed, point.call, point.nth, fault]))
    .digest("hex")
}

/** Returns at most `most` of the faults, always the same ones for a seed. Reads and events are left to the long run. */
export function sampleOf(injections: readonly InjectedFault[], most: number, seed: string): InjectedFault[] {
  return injections
    .filter(({ point }) => point.effect !== "read" && !isBackground(point.call))
    .map((injected) => ({ injected, lot: lotOf(injected, seed) }))
    .sort((a, b) => (a.lot < b.lot ? -1 : 1))
    .slice(0, most)
    .map(({ injected }) => injected)
}

/** Returns the first of those that have the same call and the same fault, however often the scenario makes that call. */
export function firstOfKind(injections: readonly InjectedFault[]): InjectedFault[] {
  const kinds = new Map<string, InjectedFault>()
  for (const each of injections) {
    const kind = `${each.fault} ${each.point.call}`
    if (!kinds.has(kind)) kinds.set(kind, each)
  }
  return [...kinds.values()]
}

/** Returns the fault's row in the table of docs/reliability/tables.md. */
export function classOf(injected: InjectedFault): string {
  return isUnderWay(injected) ? "a request to a cloud arrives when another leads already" : CLASSES[injected.fault]
}

/** Returns true if the leader is paused after the fence and just before the request. */
export function isUnderWay({ point, fault }: InjectedFault): boolean {
  return fault === "pause" && point.effect === "cloud" && !point.call.startsWith("cloud ")
}

const CLASSES: Readonly<Record<Fault, string>> = {
  before: "the operator dies before a call",
  after: "the operator dies after a call's effect",
  lost: "the answer to a call is lost",
  pause: "the leader stands still before a call, and continues when another leads",
}
