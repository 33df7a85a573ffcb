import { createHash } from "node:crypto"
import { readFile } from "node:fs/promises"
import { promisify } from "node:util"
import { gzip } from "node:zlib"
import type { RequestHandler, Router } from "express"
import { namesTag } from "../../http/entity-tags.ts"
import { allowNoOther, routeAt } from "../../http/mount.ts"
import { packageFile } from "../../package.ts"

/** Serves the API reference for people at `GET /docs`. Swagger UI renders `openapi.json` in the browser. */

/** Source of each asset. `scripts/bundle.ts` copies them into the bundle. */
const ASSETS: Readonly<Record<string, string>> = {
  "docs.css": packageFile("src", "facade", "docs", "page", "docs.css"),
  "docs.js": packageFile("src", "facade", "docs", "page", "docs.js"),
  "swagger-ui.css": packageFile("node_modules", "swagger-ui-dist", "swagger-ui.css"),
  "swagger-ui-bundle.js": packageFile("node_modules", "swagger-ui-dist", "swagger-ui-bundle.js"),
}

/** Policy of the page. Swagger UI's icons are images in its style sheet. Readers can send requests to this host only. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ")

/** Adds the page and its assets to a router, without authentication because they have no data of a project. */
export function docsRoutes(router: Router): void {
  const page = fileHandler(packageFile("src", "facade", "docs", "page", "index.html"))
  const put = (path: string, handle: RequestHandler): void =>
    allowNoOther(routeAt(router, path).get(handle), ["GET", "HEAD"])
  put("/docs", (req, res, next) => {
    res.set("Content-Security-Policy", CONTENT_SECURITY_POLICY)
    return page(req, res, next)
  })
  for (const [name, path] of Object.entries(ASSETS)) put(`/docs/${name}`, fileHandler(path))
}

interface StaticFile {
  content: Buffer
  compressed: Buffer
  tag: string
}

/**
 * Returns a handler that sends a file, read at its first request. The tag comes from the content, since npm gives every
 * file of a package the same time.
 */
function fileHandler(path: string): RequestHandler {
  let loading: Promise<StaticFile> | undefined
  return async (req, res) => {
    loading ??= load(path)
    const { content, compressed, tag } = await loading
    res.set({ "Cache-Control": "no-cache", ETag: `"${tag}"`, Vary: "Accept-Encoding" })
    if (namesTag(req.get("If-None-Match"), tag)) return void res.status(304).end()
    res.type(path.slice(path.lastIndexOf(".")))
    if (req.acceptsEncodings("gzip", "identity") !== "gzip") return void res.send(content)
    res.set("Content-Encoding", "gzip").send(compressed)
  }
}

async function load(path: string): Promise<StaticFile> {
  const content = await readFile(path)
  const tag = createHash("sha256").update(content).digest("base64url")
  return { content, compressed: await promisify(gzip)(content), tag }
}
