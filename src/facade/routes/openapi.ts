import { createHash } from "node:crypto"
import type { RequestHandler, Router } from "express"
import { REFERENCE_STYLE, type ReferenceDocument, referencePage } from "../../http/reference.ts"
import { allowNoOther } from "../endpoint.ts"
import { openApiDocument } from "../openapi.ts"

/**
 * `GET /openapi.json` and `GET /docs`, the same for people; for everybody, as they say nothing of any project.
 * @param clouds those that a job may name here
 */
export function openApiRoutes(router: Router, clouds: readonly string[]): void {
  const document = openApiDocument(clouds)
  const json = JSON.stringify(document)
  const page = referencePage(JSON.parse(json) as ReferenceDocument)
  const style = createHash("sha256").update(REFERENCE_STYLE).digest("base64")
  const policy = `default-src 'none'; style-src 'sha256-${style}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`
  const put = (path: string, handle: RequestHandler): void =>
    allowNoOther(router.route(path).get(handle), ["GET", "HEAD"])
  put("/openapi.json", (_req, res) => void res.type("application/json").send(json))
  put("/docs", (_req, res) => {
    res.set("Content-Security-Policy", policy).type("text/html; charset=utf-8").send(page)
  })
}
