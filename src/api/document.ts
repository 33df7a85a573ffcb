import type { Request, Router } from "express"
import type { ProjectAddresses } from "./addresses.ts"
import type { Json } from "./http/json-schema.ts"
import { jsonText } from "./http/json-text.ts"
import { API_ROOT, allowNoOther, routeAt } from "./http/mount.ts"
import { described, sharedParts } from "./http/openapi.ts"
import { notFound } from "./http/problem.ts"
import { accountRoutes } from "./resources/accounts/routes.ts"
import { adviceRoutes } from "./resources/advice/routes.ts"
import { arrayRoutes } from "./resources/arrays/routes.ts"
import { connectionCheckRoutes, connectionRoutes } from "./resources/connections/routes.ts"
import { costRoutes } from "./resources/costs/routes.ts"
import { cronJobRoutes } from "./resources/cronjobs/routes.ts"
import { resourceRoutes } from "./resources/discovery/routes.ts"
import { eventRoutes } from "./resources/events/routes.ts"
import { idleRoutes } from "./resources/idle/routes.ts"
import { jobRoutes } from "./resources/jobs/routes.ts"
import { keyRoutes } from "./resources/keys/routes.ts"
import { machineRoutes } from "./resources/machines/routes.ts"
import { offerRoutes } from "./resources/offers/routes.ts"
import { sessionRoutes } from "./resources/sessions/routes.ts"
import { uploadRoutes } from "./resources/uploads/routes.ts"
import { webhookRoutes, webhookTestRoutes } from "./resources/webhooks/routes.ts"
import { whoAmIRoutes } from "./resources/whoami/routes.ts"

const DESCRIPTION = `Runs declarative container jobs on the cheapest cloud VM that meets their requirements.

A project is the first label of the host: \`https://<project>.<domain>/1\`. On every host without a project, \`https://<host>/projects/<project>/1\` has the same operations. Every request needs an API key of that project in the header X-Service-Api-Key, or the bearer token of a signed-in user. Both have a role: viewer, developer or admin. Organizations, their members and projects (tag accounts) are for signed-in users only, on the host without a project.

In the body of a POST, null means omitted; in the body of a PATCH, it means unchanged. Unknown fields and parameters are rejected. A record always has all its fields.

A list is returned in pages of \`limit\` objects, from \`offset\` on, with the total. After the response to a change, lists show the change; another replica may need some milliseconds more. Empty filters list everything. A PATCH may repeat the read-only fields of a record, unchanged.

A POST with an Idempotency-Key may be repeated: it creates one object, and every repetition returns that object. The ETag of a record works with If-None-Match. It also works with If-Match, where concurrent changes are possible.

Errors are problem details (RFC 9457). A 400 lists every invalid field. Each error contains the request's id.`

/** Servers of the operations. A tool that reads only one takes the first. */
const HOST_FORM = { url: API_ROOT, description: "The host names the project." }
const PATH_FORM = {
  url: "/projects/{project}/1",
  description: "The path names the project, on any host without one.",
  variables: { project: { default: "default", description: "Id of the project." } },
}

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
export function openApiDocument(clouds: readonly string[], { projectHosts = true } = {}): Json {
  const { paths, schemas } = described([
    ...jobRoutes(clouds),
    ...cronJobRoutes(clouds),
    ...arrayRoutes(clouds),
    ...eventRoutes,
    ...keyRoutes,
    ...connectionRoutes,
    ...connectionCheckRoutes,
    ...webhookRoutes,
    ...webhookTestRoutes,
    ...machineRoutes,
    ...resourceRoutes,
    ...offerRoutes(clouds),
    ...costRoutes,
    ...adviceRoutes,
    ...idleRoutes,
    ...sessionRoutes,
    ...uploadRoutes,
    ...whoAmIRoutes,
    ...accountRoutes,
  ])
  return {
    openapi: "3.1.0",
    info: { title: "Berth", version: "1", description: DESCRIPTION },
    servers: projectHosts ? [HOST_FORM, PATH_FORM] : [PATH_FORM],
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
 * Adds `GET /openapi.json` to a router, without authentication because the document has no data of a project. Below a
 * project's path, the document's server is that path.
 */
export function openApiRoute(
  router: Router,
  { clouds, projectHosts }: { clouds: readonly string[]; projectHosts?: boolean | undefined },
  { labelOf }: Pick<ProjectAddresses, "labelOf">,
): void {
  const document = openApiDocument(clouds, { projectHosts })
  const json = jsonText(document)
  const textFor = (req: Request): string => {
    if (req.baseUrl === API_ROOT) return json
    if (labelOf(req).kind !== "project") throw notFound("The path names no project.")
    return jsonText({ ...document, servers: [{ url: req.baseUrl }] })
  }
  const route = routeAt(router, "/openapi.json")
  route.get((req, res) => void res.type("application/json").send(textFor(req)))
  allowNoOther(route, ["GET", "HEAD"])
}
