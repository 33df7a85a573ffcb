import type { Request } from "express"
import type { KubeObject, Stored } from "../apis/meta.ts"
import { badRequest, type Problem, preconditionFailed } from "./problem.ts"

/** The versions that If-Match allows; undefined: any. */
export type Precondition = ReadonlySet<string> | undefined

/** Whether If-None-Match names a tag. Compared weakly (RFC 9110, 13.1.2). */
export function namesTag(header: string | undefined, tag: string): boolean {
  return header !== undefined && (header.trim() === "*" || opaqueTags(header).includes(tag))
}

/** What stands between the quotes of a list of entity tags. */
function opaqueTags(header: string): string[] {
  return [...header.matchAll(/"([^"]*)"/g)].map(([, tag = ""]) => tag)
}

/** What If-Match may be: `*`, or a list of entity tags (RFC 9110, 13.1.1) in ASCII, as ours are. */
const IF_MATCH = /^(\*|(W\/)?"[!#-~]*"([ \t]*,[ \t]*(W\/)?"[!#-~]*")*)$/

/**
 * The versions that a request's If-Match names; undefined when it has none, or `*`: what is not there is a 404 with any
 * precondition, because one only counts where there would be success without it (RFC 9110, 13.2.1). Entity tags here are
 * weak and still good for this: a tag is a version, and no change of an object keeps it (RFC 9110, 13.1.1 has bytes in mind).
 * @throws Problem 400
 */
export function preconditionOf(req: Request): Precondition {
  const header = req.get("If-Match")?.trim()
  if (header === undefined || header === "*") return undefined
  if (!IF_MATCH.test(header)) {
    throw badRequest('If-Match must be * or entity tags from an ETag header, such as W/"123".')
  }
  return new Set(opaqueTags(header).map((tag) => tag.split(".")[0] ?? ""))
}

/** @param noun the contract's word for the object @throws Problem 412 when it is at none of these versions */
export function requireVersion(
  noun: string,
  { metadata }: Pick<Stored<KubeObject>, "metadata">,
  precondition: Precondition,
): void {
  if (precondition !== undefined && !precondition.has(metadata.resourceVersion)) throw notAtVersion(noun)
}

/** 412: the object has changed. */
export function notAtVersion(noun: string): Problem {
  return preconditionFailed(`The ${noun} has changed since the version that If-Match names: get it again.`)
}
