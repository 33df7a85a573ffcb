import { createHash } from "node:crypto"
import { readFile } from "node:fs/promises"
import { promisify } from "node:util"
import { brotliCompress, constants, gzip } from "node:zlib"
import type { RequestHandler } from "express"
import { namesTag } from "./entity-tags.ts"

/** Encodings of files, the smallest first. */
const ENCODINGS = ["br", "gzip"] as const

/** The default, 11, takes 2.7 s of CPU for Swagger UI, at the first request. 6 takes 0.06 s, and has 11 % more bytes. */
const BROTLI = { params: { [constants.BROTLI_PARAM_QUALITY]: 6 } }

interface StaticFile {
  content: Buffer
  encoded: Record<(typeof ENCODINGS)[number], Buffer>
  tag: string
}

/** Caching of a file: one whose name has a hash of its content never changes, any other is checked each time. */
export type Caching = "immutable" | "checked"

const CACHE_CONTROL: Record<Caching, string> = {
  immutable: "public, max-age=31536000, immutable",
  checked: "no-cache",
}

/**
 * Returns a handler that sends a file, read at its first request. The tag comes from the content, since npm gives every
 * file of a package the same time.
 */
export function staticFile(path: string, caching: Caching = "checked"): RequestHandler {
  let loading: Promise<StaticFile> | undefined
  return async (req, res) => {
    loading ??= load(path)
    const { content, encoded, tag } = await loading
    res.set({ "Cache-Control": CACHE_CONTROL[caching], ETag: `"${tag}"`, Vary: "Accept-Encoding" })
    if (namesTag(req.get("If-None-Match"), tag)) return void res.status(304).end()
    res.type(path.slice(path.lastIndexOf(".")))
    // Each one alone: clients list gzip first, and mean no preference.
    const encoding = ENCODINGS.find((one) => req.acceptsEncodings(one) === one)
    if (encoding === undefined) return void res.send(content)
    res.set("Content-Encoding", encoding).send(encoded[encoding])
  }
}

async function load(path: string): Promise<StaticFile> {
  const content = await readFile(path)
  const tag = createHash("sha256").update(content).digest("base64url")
  const [br, zipped] = await Promise.all([promisify(brotliCompress)(content, BROTLI), promisify(gzip)(content)])
  return { content, encoded: { br, gzip: zipped }, tag }
}
