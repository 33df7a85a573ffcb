import type { Request } from "express"
import type { KubeObject, Stored } from "../../core/apis/meta.ts"
import { badRequest, type Problem, preconditionFailed } from "./problem.ts"

/** Versions that If-Match allows. Undefined: any. */
export type Precondition = ReadonlySet<string> | undefined

/** Returns true if If-None-Match names a tag. The comparison is weak (RFC 9110, 13.1.2). */
export function namesTag(header: string | undefined, tag: string): boolean {
  return header !== undefined && (header.trim() === "*" || opaqueTags(header).includes(tag))
}

/** Returns the texts between the quotes of a list of entity tags. */
function opaqueTags(header: string): string[] {
  return [...header.matchAll(/"([^"]*)"/g)].map(([, tag = ""]) => tag)
}

/** Pattern of If-Match: `*`, or a list of entity tags (RFC 9110, 13.1.1) in ASCII, like the API's own tags. */
const IF_MATCH = /^(\*|(W\/)?"[!#-~]*"([ \t]*,[ \t]*(W\/)?"[!#-~]*")*)$/

/**
 * Returns the versions that a request's If-Match names. Undefined without the header, and for `*`: a missing object is
 * a 404 with any precondition. A precondition only counts if the request would succeed without it (RFC 9110, 13.2.1).
 * RFC 9110, 13.1.1 asks for strong tags because it compares bytes. The weak tags here are enough: a tag is a version,
 * and every change of an object changes the version.
 * @throws Problem 400
 */
export function readPrecondition(req: Request): Precondition {
  const header = req.get("If-Match")?.trim()
  if (header === undefined || header === "*") return undefined
  if (!IF_MATCH.test(header)) {
    throw badRequest('If-Match must be * or entity tags from an ETag header, such as W/"123".')
  }
  return new Set(opaqueTags(header).map((tag) => tag.split(".")[0] ?? ""))
}

/** @param noun the contract's word for the object @throws Problem 412 if the object is at none of these versions */
export function requireVersion(
  noun: string,
  { metadata }: Pick<Stored<KubeObject>, "metadata">,
  precondition: Precondition,
): void {
  if (precondition !== undefined && !precondition.has(metadata.resourceVersion)) throw notAtVersion(noun)
}

/** Returns the problem 412 for an object that has changed. */
export function notAtVersion(noun: string): Problem {
  return preconditionFailed(`The ${noun} has changed since the version that If-Match names: get it again.`)
}
