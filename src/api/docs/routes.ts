import type { RequestHandler, Router } from "express"
import { packageFile } from "../../core/package.ts"
import { allowNoOther, routeAt } from "../http/mount.ts"
import { staticFile } from "../http/static-file.ts"

/** Serves the API reference for people at `GET /docs`. Swagger UI renders `openapi.json` in the browser. */

/** Source of each asset. `scripts/bundle.ts` copies them into the bundle. */
const ASSETS: Readonly<Record<string, string>> = {
  "docs.css": packageFile("src", "api", "docs", "page", "docs.css"),
  "docs.js": packageFile("src", "api", "docs", "page", "docs.js"),
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
  const page = staticFile(packageFile("src", "api", "docs", "page", "index.html"))
  const put = (path: string, handle: RequestHandler): void =>
    allowNoOther(routeAt(router, path).get(handle), ["GET", "HEAD"])
  put("/docs", (req, res, next) => {
    res.set("Content-Security-Policy", CONTENT_SECURITY_POLICY)
    return page(req, res, next)
  })
  for (const [name, path] of Object.entries(ASSETS)) put(`/docs/${name}`, staticFile(path))
}
