import type { TSchema } from "typebox"
import { JOB_PHASES } from "../apis/job.ts"
import { BODY_LIMIT_BYTES } from "./body/body.ts"
import { PAGE } from "./query.ts"
import { JobCreatedSchema, JobRecordSchema, JobSubmissionSchema } from "./schemas/job.ts"

type Json = Record<string, unknown>

const schemaRef = (name: string): Json => ({ $ref: `#/components/schemas/${name}` })
const json = (name: string): Json => ({ "application/json": { schema: schemaRef(name) } })

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
    paths: jobPaths(),
    components: {
      securitySchemes: { apiKey: { type: "apiKey", in: "header", name: "X-Service-Api-Key" } },
      responses: {
        Problem: { description: "A problem.", content: { "application/problem+json": { schema: PROBLEM } } },
      },
      schemas: {
        JobSubmission: published(JobSubmissionSchema),
        JobCreated: published(JobCreatedSchema),
        JobRecord: published(JobRecordSchema),
        JobList: {
          type: "object",
          required: ["jobs", "total", "offset", "limit"],
          properties: {
            jobs: { type: "array", items: schemaRef("JobRecord") },
            total: { type: "integer" },
            offset: { type: "integer" },
            limit: { type: "integer" },
          },
        },
      },
    },
  }
}

function jobPaths(): Json {
  const job = { name: "job", in: "path", required: true, schema: { type: "string" }, description: "Id or name." }
  return {
    "/jobs": {
      post: operation("createJob", "Submit a job (developer or higher).", {
        parameters: [{ name: "Idempotency-Key", in: "header", schema: { type: "string", maxLength: 255 } }],
        requestBody: {
          required: true,
          description: `At most ${BODY_LIMIT_BYTES} bytes.`,
          content: { ...json("JobSubmission"), "application/yaml": { schema: schemaRef("JobSubmission") } },
        },
        responses: { "201": { description: "Registered.", content: json("JobCreated") } },
      }),
      get: operation("listJobs", "List jobs, newest first (viewer or higher).", {
        parameters: listParameters(),
        responses: { "200": { description: "A page of jobs.", content: json("JobList") } },
      }),
    },
    "/jobs/{job}": {
      get: operation("getJob", "A job (viewer or higher).", {
        parameters: [job],
        responses: { "200": { description: "The job.", content: json("JobRecord") } },
      }),
    },
    "/jobs/{job}/cancel": {
      post: operation("cancelJob", "Cancel a job (developer or higher).", {
        parameters: [job],
        responses: { "200": { description: "The cancelled job.", content: json("JobRecord") } },
      }),
    },
    "/jobs/{job}/logs": {
      get: operation("getJobLogs", "What the job's containers wrote (viewer or higher).", {
        parameters: [job, queryParameter("follow", { type: "boolean" }), queryParameter("tail", { type: "integer" })],
        responses: { "200": { description: "The log.", content: { "text/plain": { schema: { type: "string" } } } } },
      }),
    },
  }
}

function operation(operationId: string, summary: string, rest: { responses: Json } & Json): Json {
  const responses = { ...rest.responses, default: { $ref: "#/components/responses/Problem" } }
  return { operationId, summary, tags: ["jobs"], ...rest, responses }
}

function listParameters(): Json[] {
  const repeatable = { type: "array", items: { type: "string" } }
  return [
    queryParameter("status", { type: "string", enum: JOB_PHASES }),
    queryParameter("tag", repeatable),
    queryParameter("label", { ...repeatable, description: "key:value or key=value." }),
    queryParameter("limit", { type: "integer", minimum: 1, maximum: PAGE.maxLimit, default: PAGE.defaultLimit }),
    queryParameter("offset", { type: "integer", minimum: 0, default: 0 }),
  ]
}

function queryParameter(name: string, schema: Json): Json {
  return { name, in: "query", schema }
}

/** A schema without the keywords that only the API server or our own messages know, closed as the validator closes it. */
function published(schema: TSchema): unknown {
  return withoutInternals(JSON.parse(JSON.stringify(schema)))
}

function withoutInternals(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutInternals)
  if (typeof value !== "object" || value === null) return value
  const entries = Object.entries(value)
    .filter(([key]) => !key.startsWith("x-berth-") && !key.startsWith("x-kubernetes-"))
    .map(([key, item]) => [key, withoutInternals(item)] as const)
  const result: Json = Object.fromEntries(entries)
  if (result["type"] !== undefined && typeof result["properties"] === "object") result["additionalProperties"] ??= false
  return result
}
