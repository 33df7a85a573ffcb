import type { Router } from "express"
import { openApiDocument } from "../openapi.ts"

/** `GET /openapi.json`, for everybody: it says nothing of any project. */
export function openApiRoute(router: Router): void {
  const document = JSON.stringify(openApiDocument())
  router.get("/openapi.json", (_req, res) => {
    res.type("application/json").send(document)
  })
}
