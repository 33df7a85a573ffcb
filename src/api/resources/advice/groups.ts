import { createHash } from "node:crypto"
import type { StoredJob } from "../../../core/apis/job.ts"
import type { Match } from "../../../core/kube/page-index.ts"
import { amountsOf, LEAST_RUNS, type MeasuredRun, RESOURCE_NAMES } from "../../../market/advice/needs.ts"
import { type Creator, groupName, type Origin, originOf } from "../jobs/groups.ts"
import { measuredRunIn, programIn } from "../jobs/numbers.ts"

/** Measured runs with the same creator or, without one, with the same image and command. */
export interface MeasuredRuns {
  /** Creator of the jobs; undefined: none, so they have the same image and command. */
  origin: Origin | undefined
  /** Key of the newest job in the store. */
  newestKey: string
  runs: MeasuredRun[]
}

/** Largest number of groups that one answer calculates: those that ran longest. Each costs two scans of all offers. */
export const MOST_GROUPS = 100

/** Collects measured runs, the newest first, in groups. */
export class RunGroups {
  readonly #byName = new Map<string | number, MeasuredRuns>()

  /** Adds a run. */
  add(match: Match): void {
    const { group: origin, key } = match
    const name = origin ?? programIn(match)
    const group = this.#byName.get(name) ?? {
      origin: origin === undefined ? undefined : originOf(origin),
      newestKey: key,
      runs: [],
    }
    this.#byName.set(name, group)
    group.runs.push(measuredRunIn(match))
  }

  /** Returns the groups with enough runs, those that ran longest first. */
  get ready(): MeasuredRuns[] {
    const ready = [...this.#byName.values()].filter(({ runs }) => runs.length >= LEAST_RUNS)
    const timed = ready.map((group) => ({ group, seconds: group.runs.reduce((sum, { seconds }) => sum + seconds, 0) }))
    return timed
      .sort((a, b) => b.seconds - a.seconds)
      .slice(0, MOST_GROUPS)
      .map(({ group }) => group)
  }
}

/** Identity of a group in the API. */
export interface GroupIdentity {
  kind: "cronjob" | "array" | "image"
  /** UUID of the cronjob or array, or a digest of image and command. */
  id: string
  name: string
}

/**
 * Returns the identity of a group; undefined if advice about it is of no use: its creator was deleted, or asks for other
 * resources since its last run.
 */
export function identityOf(
  group: MeasuredRuns,
  latest: StoredJob,
  creator: Creator | undefined,
): GroupIdentity | undefined {
  const { origin } = group
  if (origin === undefined) return programOf(latest)
  if (creator === undefined) return undefined
  const [then, now] = [latest.spec.resources ?? {}, creator.spec.jobDefinition.resources ?? {}].map(amountsOf)
  if (RESOURCE_NAMES.some((name) => then?.[name] !== now?.[name])) return undefined
  return { kind: origin.kind, id: origin.uid, name: groupName(group, creator, () => latest) }
}

/** Characters of a program's name. */
const LONGEST_NAME = 120

function programOf({ spec: { image, command, args = [] } }: StoredJob): GroupIdentity {
  const words = command ?? args
  const id = createHash("sha256")
    .update(JSON.stringify([image, command !== undefined, words]))
    .digest("hex")
  const name = [image, ...words].join(" ")
  return { kind: "image", id, name: name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name }
}
