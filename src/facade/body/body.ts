import { type Request, type RequestHandler, raw } from "express"
import { badRequest, Problem } from "../problem.ts"
import { parseJson } from "./json.ts"
import { parseYaml } from "./yaml.ts"

/** Largest body, bytes (design, section 8); what a job can hold by its own limits is smaller. */
export const BODY_LIMIT_BYTES = 256 * 1024

/** Deepest nesting: the API's own shapes need five levels; bounds every later recursion. */
const MAX_DEPTH = 32

const PARSERS: Record<string, (text: string, maxDepth: number) => unknown> = {
  "application/json": parseJson,
  "application/yaml": parseYaml,
  // What YAML was called before RFC 9512 registered it.
  "application/x-yaml": parseYaml,
  "text/yaml": parseYaml,
  "text/x-yaml": parseYaml,
}

/** Reads a body of any type into memory; a larger one is a 413 as soon as its length is known or exceeded. */
export function bodyReader(): RequestHandler {
  return raw({ type: () => true, limit: BODY_LIMIT_BYTES })
}

/**
 * The value that the request's body stands for. Needs `bodyReader` before.
 * @throws Problem 415 for another media type, 400 for what can't be parsed
 */
export function parseBody(req: Request): unknown {
  const [mediaType = "", ...parameters] = (req.get("Content-Type") ?? "").toLowerCase().split(";")
  const parse = PARSERS[mediaType.trim()]
  if (parse === undefined) throw unsupported(mediaType.trim())
  const charset = parameters.map((parameter) => parameter.trim()).find((parameter) => parameter.startsWith("charset="))
  if (charset !== undefined && !/^charset="?utf-?8"?$/.test(charset)) throw unsupported(`${mediaType}; ${charset}`)
  // Without a body, express leaves it undefined.
  const bytes = Buffer.isBuffer(req.body) ? req.body : Buffer.alloc(0)
  const text = decode(bytes)
  if (text.trim() === "") throw badRequest("The body is empty: send an object as JSON or YAML.")
  return parse(text, MAX_DEPTH)
}

function unsupported(mediaType: string): Problem {
  const what = mediaType === "" ? "The request names no Content-Type" : `A body of type "${mediaType}" is not taken`
  const accept = "application/json, application/yaml"
  return new Problem({
    type: "unsupported-media-type",
    status: 415,
    detail: `${what}: send ${accept.replace(",", " or")}, in UTF-8.`,
    headers: { "Accept-Post": accept },
  })
}

function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes)
  } catch {
    throw badRequest("The body is not UTF-8.")
  }
}
