import { jobPaths, jobSchemas } from "./openapi/jobs.ts"
import { keyPaths, keySchemas } from "./openapi/keys.ts"
import type { Json } from "./openapi/parts.ts"

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
        properties: { pointer: { type: "string" }, detail: { type: "string" } },
      },
    },
  },
}

/** The API in OpenAPI 3.1, made from the very schemas that requests are checked by. */
export function openApiDocument(): Json {
  return {
    openapi: "3.1.0",
    info: { title: "Berth", version: "1", description: "Runs declarative container jobs on the cheapest cloud VM." },
    servers: [{ url: "/1" }],
    security: [{ apiKey: [] }],
    paths: { ...jobPaths(), ...keyPaths() },
    components: {
      securitySchemes: { apiKey: { type: "apiKey", in: "header", name: "X-Service-Api-Key" } },
      responses: {
        Problem: { description: "A problem.", content: { "application/problem+json": { schema: PROBLEM } } },
      },
      schemas: { ...jobSchemas(), ...keySchemas() },
    },
  }
}
