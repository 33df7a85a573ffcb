import type { Router } from "express"
import type { Json } from "../http/json-schema.ts"
import { jsonText } from "../http/json-text.ts"
import { allowNoOther } from "../http/mount.ts"
import { described, sharedParts } from "../http/openapi.ts"
import { accountRoutes } from "./accounts/routes.ts"
import { connectionRoutes } from "./connections/routes.ts"
import { cronJobRoutes } from "./cronjobs/routes.ts"
import { jobRoutes } from "./jobs/routes.ts"
import { keyRoutes } from "./keys/routes.ts"
import { resourceRoutes } from "./resources/routes.ts"

const DESCRIPTION = `Runs declarative container jobs on the cheapest cloud VM that meets their requirements.

A project is the first label of the host: \`https://<project>.<domain>/1\`. Every request needs an API key of that project in the header X-Service-Api-Key, or the bearer token of a signed-in user. Both have a role: viewer, developer or admin. Organizations, their members and projects (tag accounts) are for signed-in users only, on the host without a project.

In the body of a POST, null means omitted; in the body of a PATCH, it means unchanged. Unknown fields and parameters are rejected. A record always has all its fields.

A list is returned in pages of \`limit\` objects, from \`offset\` on, with the total. After the response to a change, lists show the change; another replica may need some milliseconds more. Empty filters list everything. A PATCH may repeat the read-only fields of a record, unchanged.

A POST with an Idempotency-Key may be repeated: it creates one object, and every repetition returns that object. The ETag of a record works with If-None-Match. It also works with If-Match, where concurrent changes are possible.

Errors are problem details (RFC 9457). A 400 lists every invalid field. Each error contains the request's id.`

const PROBLEM: Json = {
  type: "object",
  description: "RFC 9457 problem details.",
  required: ["type", "title", "status", "detail", "instance", "errors"],
  properties: {
    type: { type: "string", format: "uri" },
    title: { type: "string" },
    status: { type: "integer" },
    detail: { type: "string" },
    instance: { type: "string", description: "The request's id." },
    errors: {
      type: "array",
      items: {
        type: "object",
        required: ["pointer", "detail"],
        properties: {
          pointer: { type: "string", description: "JSON pointer (RFC 6901) of the field in the body." },
          detail: { type: "string" },
        },
      },
    },
  },
  examples: [
    {
      type: "https://berth.dev/problems/invalid-request",
      title: "Bad Request",
      status: 400,
      detail: "The job has one error: see errors.",
      instance: "01JD0Z6Q3W8Y0T2J5K6M7N8P9Q",
      errors: [{ pointer: "/image", detail: "image is required" }],
    },
  ],
}

/**
 * Returns the OpenAPI 3.1 document of the API, from the declarations of its routes.
 * @param clouds the clouds that a job may name
 */
export function openApiDocument(clouds: readonly string[]): Json {
  const { paths, schemas } = described([
    ...jobRoutes(clouds),
    ...cronJobRoutes(clouds),
    ...keyRoutes,
    ...connectionRoutes,
    ...resourceRoutes,
    ...accountRoutes,
  ])
  return {
    openapi: "3.1.0",
    info: { title: "Berth", version: "1", description: DESCRIPTION },
    servers: [{ url: "/1" }],
    security: [{ apiKey: [] }, { bearer: [] }],
    paths,
    components: {
      securitySchemes: {
        apiKey: { type: "apiKey", in: "header", name: "X-Service-Api-Key" },
        bearer: { type: "http", scheme: "bearer", bearerFormat: "JWT" },
      },
      ...sharedParts(),
      schemas: { ...schemas, Problem: PROBLEM },
    },
  }
}

/**
 * Adds `GET /openapi.json` to a router, without authentication because the document has no data of a project.
 * @param clouds the clouds that a job may name
 */
export function openApiRoute(router: Router, clouds: readonly string[]): void {
  const json = jsonText(openApiDocument(clouds))
  const path: string = "/openapi.json"
  const route = router.route(path).get((_req, res) => void res.type("application/json").send(json))
  allowNoOther(route, ["GET", "HEAD"])
}
