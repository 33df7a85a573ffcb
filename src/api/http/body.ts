import type { Request, RequestHandler } from "express"
import { quote, shownText } from "../../core/apis/field-error.ts"
import { parseJson } from "./json.ts"
import { badRequest, Problem } from "./problem.ts"
import { ConcurrencyLimit } from "./rate-limits.ts"
import { requireUnicode } from "./surrogates.ts"
import { parseYaml } from "./yaml.ts"

/** Largest body, bytes. Other requests wait while a body is checked. */
export const BODY_LIMIT_BYTES = 128 * 1024

/** Largest body that a principal may send any number of at the same time, bytes. */
const SMALL_BODY_BYTES = 16 * 1024

/** Largest number of requests of one principal at the same time with larger bodies. */
const MOST_LARGE_BODIES = 4

/** Deepest nesting of a body. The API's schemas need 5 levels; the limit bounds every later recursion. */
const MAX_DEPTH = 32

const PARSERS: Record<string, (text: string, maxDepth: number) => unknown> = {
  "application/json": parseJson,
  "application/yaml": parseYaml,
  // Media types of YAML before RFC 9512 registered one.
  "application/x-yaml": parseYaml,
  "text/yaml": parseYaml,
  "text/x-yaml": parseYaml,
}

export interface BodyReaderOptions {
  principalOf: (req: Request) => { id: string }
  /** Counts the bytes of a request's body. @throws Problem 429 */
  countBody: (req: Request, bytes: number) => Promise<void>
}

/**
 * Returns a handler that reads the body into memory. The handler rejects a body over the limit at its Content-Length or
 * at the first byte too many. Express's own parsers would read the body to its end first. A principal has at most
 * MOST_LARGE_BODIES larger bodies at the same time.
 * @throws Problem 413, 415 for a Content-Encoding, 400 if the body is incomplete, 429
 */
export function bodyReader({ principalOf, countBody }: BodyReaderOptions): RequestHandler {
  const large = new ConcurrencyLimit(MOST_LARGE_BODIES)
  const detail =
    `${MOST_LARGE_BODIES} requests with bodies over ${SMALL_BODY_BYTES} bytes are in progress: ` +
    "repeat this one when one of them has ended."
  return async (req, res, next) => {
    const encoding = req.get("Content-Encoding") ?? "identity"
    if (encoding !== "identity") throw unsupportedBody(`with Content-Encoding ${quote(encoding)}`)
    const announced = Number(req.get("Content-Length") ?? 0)
    if (announced > BODY_LIMIT_BYTES) throw tooLarge()
    const takeTurn = (): void => large.hold(principalOf(req).id, res, { detail, retryAfterSeconds: 1 })
    if (announced > SMALL_BODY_BYTES) takeTurn()
    const body = await boundedBytes(req, announced > SMALL_BODY_BYTES ? undefined : takeTurn)
    await countBody(req, body.length)
    req.body = body
    next()
  }
}

/** @param takeTurn called when the body turns out to be large */
async function boundedBytes(req: Request, takeTurn: (() => void) | undefined): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  let length = 0
  // The stream stays open when the loop ends early, because the response uses the same connection.
  const pieces = req.iterator({ destroyOnReturn: false }) as AsyncIterable<Uint8Array>
  try {
    for await (const chunk of pieces) {
      const wasSmall = length <= SMALL_BODY_BYTES
      length += chunk.length
      if (length > BODY_LIMIT_BYTES) throw tooLarge()
      if (wasSmall && length > SMALL_BODY_BYTES) takeTurn?.()
      chunks.push(chunk)
    }
  } catch (error) {
    // The client closed the connection, or was too slow. This isn't an error of the server.
    if (req.errored === error) throw badRequest("The body did not arrive completely.")
    throw error
  }
  return Buffer.concat(chunks)
}

function tooLarge(): Problem {
  const detail = `The body is larger than ${BODY_LIMIT_BYTES} bytes.`
  return new Problem({ type: "too-large", status: 413, detail })
}

/** Returns true if the request's body, which `bodyReader` must have read, is not empty. */
export function hasContent(req: Request): boolean {
  return (req.body as Buffer).length > 0
}

/**
 * Parses the request's body, which `bodyReader` must have read.
 * @throws Problem 415 for another media type, 400 for a body that can't be parsed
 */
export function parseBody(req: Request): unknown {
  const [mediaType = "", ...parameters] = (req.get("Content-Type") ?? "").toLowerCase().split(";")
  const parse = PARSERS[mediaType.trim()] ?? (isMergePatch(req, mediaType) ? parseJson : undefined)
  if (parse === undefined)
    throw unsupportedBody(mediaType === "" ? "without a Content-Type" : `of type ${quote(mediaType.trim())}`)
  const charset = parameters.map((parameter) => parameter.trim()).find((parameter) => parameter.startsWith("charset="))
  if (charset !== undefined && !/^charset="?utf-?8"?$/.test(charset)) throw unsupportedBody(`in ${shownText(charset)}`)
  const text = decode(req.body as Buffer)
  if (text.trim() === "") throw badRequest("The body is empty: send an object as JSON or YAML.")
  const value = parse(text, MAX_DEPTH)
  requireUnicode(text, value)
  return value
}

/** True for a PATCH that names its format (RFC 7396), as Kubernetes' clients do. */
function isMergePatch(req: Request, mediaType: string): boolean {
  return req.method === "PATCH" && mediaType.trim() === "application/merge-patch+json"
}

function unsupportedBody(what: string): Problem {
  const detail = `A body ${what} is not supported: send application/json or application/yaml, in UTF-8, uncompressed.`
  const headers = { "Accept-Post": "application/json, application/yaml" }
  return new Problem({ type: "unsupported-media-type", status: 415, detail, headers })
}

function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes)
  } catch {
    throw badRequest("The body is not UTF-8.")
  }
}
