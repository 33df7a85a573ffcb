import { isSamePrerequisite, type Prerequisite, type PrerequisiteName } from "../apis/prerequisites.ts"
import {
  findCircle,
  isWaiting,
  type Obstacle,
  type Orderable,
  obstacleOf,
  openPrerequisites,
  prerequisiteState,
  recordOf,
} from "./prerequisites.ts"

/** Order of jobs and arrays, for records, plans and cancellations. Pure. */

/** Prerequisite that has not ended yet. */
export interface Awaited {
  prerequisite: Prerequisite
  /** Uid of the object that had the name first. Absent: none had it so far. */
  uid?: string
}

/** Returns the prerequisites for which a queued job or array waits; none if it is cancelled or has started. */
export function awaitedBy(name: PrerequisiteName, object: Orderable): Awaited[] {
  if (!waits(name, object)) return []
  return openPrerequisites(object).map((prerequisite) => {
    const record = recordOf(prerequisite, object)
    return { prerequisite, ...(record !== undefined && { uid: record.uid }) }
  })
}

/** Returns true if a job or an array is queued until others end. A cancelled one waits for nothing. */
function waits(name: PrerequisiteName, object: Orderable): boolean {
  const { phase = "queued" } = object.status ?? {}
  return phase === "queued" && object.spec.cancelled !== true && isWaiting(name, object)
}

/**
 * Returns why a job or an array doesn't start, as the operator says it; undefined: all its prerequisites ended as it
 * needs.
 * @param find returns the object with a name
 */
export function obstacleTo(
  name: PrerequisiteName,
  dependent: Orderable,
  find: (name: PrerequisiteName) => Orderable | undefined,
): Obstacle | undefined {
  const { after = [] } = dependent.spec
  const states = after.map((one) => prerequisiteState(one, recordOf(one, dependent), find(one)))
  return obstacleOf(states, findCircle(name, dependent, find))
}

/** Job or array, with the name that a prerequisite has. */
export interface Ordered<T extends Orderable = Orderable> {
  name: PrerequisiteName
  object: T
}

/** Returns true if an object waits for this one, and not for an earlier one of its name. */
export function isDependent<T extends Orderable>({ name, object }: Ordered<T>, of: Ordered<T>): boolean {
  if (object.metadata.deletionTimestamp !== undefined) return false
  return awaitedBy(name, object).some(
    ({ prerequisite, uid }) =>
      isSamePrerequisite(prerequisite, of.name) && (uid === undefined || uid === of.object.metadata.uid),
  )
}

/**
 * Returns what waits for an object, also through others, in groups. What waits for a member is in an earlier group, except
 * on a circle. So a cancellation of group after group starts nothing.
 * @param dependentsOf returns what waits for an object itself
 */
export function dependentGroups<T extends Orderable>(
  start: Ordered<T>,
  dependentsOf: (one: Ordered<T>) => readonly Ordered<T>[],
): Ordered<T>[][] {
  const groups: Ordered<T>[][] = []
  // Longest way from an object to one for which nothing waits.
  const heights = new Map<string | undefined, number>()
  const seen = new Set([start.object.metadata.uid])
  const entered = (one: Ordered<T>) => ({ one, left: [...dependentsOf(one)], height: 0 })
  const path = [entered(start)]
  for (let last = path.at(-1); last !== undefined; last = path.at(-1)) {
    const next = last.left.pop()
    if (next === undefined) {
      path.pop()
      const before = path.at(-1)
      if (before === undefined) break
      before.height = Math.max(before.height, last.height + 1)
      heights.set(last.one.object.metadata.uid, last.height)
      const group = groups[last.height] ?? []
      groups[last.height] = group
      group.push(last.one)
      continue
    }
    const { uid } = next.object.metadata
    if (seen.has(uid)) {
      // On a circle its height is not known yet.
      last.height = Math.max(last.height, (heights.get(uid) ?? -1) + 1)
      continue
    }
    seen.add(uid)
    path.push(entered(next))
  }
  return groups
}
