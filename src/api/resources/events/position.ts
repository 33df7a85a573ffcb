import { compareResourceVersions } from "../../../core/kube/resource-version.ts"

/** Kinds of objects whose changes are events, by the words of the contract. */
export const KINDS = ["job", "cronjob", "array", "connection"] as const
export type Kind = (typeof KINDS)[number]

/**
 * Position in the changes of a project: the resourceVersion of each kind up to which a client has all changes. Versions
 * of different kinds can't be compared, and one kind's changes may arrive later than another's.
 */
export type Position = Readonly<Record<Kind, string>>

/** Returns the `id` of an event: `job.105,cronjob.99,array.98,connection.7`. */
export function encodePosition(position: Position): string {
  return KINDS.map((kind) => `${kind}.${position[kind]}`).join(",")
}

const VERSION = "(?:0|[1-9][0-9]{0,19})"
const ID = new RegExp(`^[a-z]+\\.${VERSION}(?:,[a-z]+\\.${VERSION})*$`)

/** Returns the versions in an `id`; undefined for another text. A kind that another release added or removed may differ. */
export function positionIn(id: string): Partial<Position> | undefined {
  if (!ID.test(id)) return undefined
  return Object.fromEntries(id.split(",").map((part) => part.split(".") as [string, string]))
}

/** Returns a position with the later of its own version of a kind and this one. */
export function advance(position: Position, kind: Kind, version: string): Position {
  return compareResourceVersions(version, position[kind]) > 0 ? { ...position, [kind]: version } : position
}
