import type { Request, RequestHandler } from "express"
import { parseJson } from "./json.ts"
import { badRequest, Problem } from "./problem.ts"
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

/**
 * Reads the body into memory. A larger one is a 413 as soon as its length is known or exceeded: express's own parsers
 * would read it to its end before they answer.
 */
export const readBody: RequestHandler = async (req, _res, next) => {
  const encoding = req.get("Content-Encoding") ?? "identity"
  if (encoding !== "identity") throw unsupported(`with Content-Encoding ${JSON.stringify(encoding)}`)
  if (Number(req.get("Content-Length") ?? 0) > BODY_LIMIT_BYTES) throw tooLarge()
  req.body = await boundedBytes(req)
  next()
}

async function boundedBytes(req: Request): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  let length = 0
  // Not destroyed when it is left early: the answer goes over the same connection.
  const pieces = req.iterator({ destroyOnReturn: false }) as AsyncIterable<Uint8Array>
  try {
    for await (const chunk of pieces) {
      length += chunk.length
      if (length > BODY_LIMIT_BYTES) throw tooLarge()
      chunks.push(chunk)
    }
  } catch (error) {
    // The client went away, or was too slow and was cut off: nobody is there to be answered, and nothing is our fault.
    if (req.errored === error) throw badRequest("The body did not arrive completely.")
    throw error
  }
  return Buffer.concat(chunks)
}

function tooLarge(): Problem {
  const detail = `The body is larger than ${BODY_LIMIT_BYTES} bytes.`
  return new Problem({ type: "too-large", status: 413, detail })
}

/**
 * The value that the request's body stands for. Needs `readBody` before.
 * @throws Problem 415 for another media type, 400 for what can't be parsed
 */
export function parseBody(req: Request): unknown {
  const [mediaType = "", ...parameters] = (req.get("Content-Type") ?? "").toLowerCase().split(";")
  const parse = PARSERS[mediaType.trim()]
  if (parse === undefined)
    throw unsupported(mediaType === "" ? "without a Content-Type" : `of type "${mediaType.trim()}"`)
  const charset = parameters.map((parameter) => parameter.trim()).find((parameter) => parameter.startsWith("charset="))
  if (charset !== undefined && !/^charset="?utf-?8"?$/.test(charset)) throw unsupported(`in ${charset}`)
  const text = decode(req.body as Buffer)
  if (text.trim() === "") throw badRequest("The body is empty: send an object as JSON or YAML.")
  return parse(text, MAX_DEPTH)
}

function unsupported(what: string): Problem {
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
