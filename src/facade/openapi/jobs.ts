import { JOB_PHASES } from "../../apis/job.ts"
import { BODY_LIMIT_BYTES } from "../body/body.ts"
import { JobCreatedSchema, JobRecordSchema, JobSubmissionSchema } from "../schemas/job.ts"
import {
  IDEMPOTENCY_KEY,
  type Json,
  json,
  jsonOrYaml,
  operation,
  pageParameters,
  pageSchema,
  published,
  queryParameter,
} from "./parts.ts"

const TAGS = ["jobs"]

/** The schemas that `jobPaths` refers to. */
export function jobSchemas(): Json {
  return {
    JobSubmission: published(JobSubmissionSchema),
    JobCreated: published(JobCreatedSchema),
    JobRecord: published(JobRecordSchema),
    JobList: pageSchema("jobs", "JobRecord"),
  }
}

/** The contract's job endpoints. */
export function jobPaths(): Json {
  const job = { name: "job", in: "path", required: true, schema: { type: "string" }, description: "Id or name." }
  return {
    "/jobs": {
      post: operation("createJob", "Submit a job (developer or higher).", {
        tags: TAGS,
        parameters: [IDEMPOTENCY_KEY],
        requestBody: {
          required: true,
          description: `At most ${BODY_LIMIT_BYTES} bytes.`,
          content: jsonOrYaml("JobSubmission"),
        },
        responses: { "201": { description: "Registered.", content: json("JobCreated") } },
      }),
      get: operation("listJobs", "List jobs, newest first (viewer or higher).", {
        tags: TAGS,
        parameters: listParameters(),
        responses: { "200": { description: "A page of jobs.", content: json("JobList") } },
      }),
    },
    "/jobs/{job}": {
      get: operation("getJob", "A job (viewer or higher).", {
        tags: TAGS,
        parameters: [job],
        responses: { "200": { description: "The job.", content: json("JobRecord") } },
      }),
    },
    "/jobs/{job}/cancel": {
      post: operation("cancelJob", "Cancel a job (developer or higher).", {
        tags: TAGS,
        parameters: [job],
        responses: { "200": { description: "The cancelled job.", content: json("JobRecord") } },
      }),
    },
    "/jobs/{job}/logs": {
      get: operation("getJobLogs", "What the job's containers wrote (viewer or higher).", {
        tags: TAGS,
        parameters: [job, queryParameter("follow", { type: "boolean" }), queryParameter("tail", { type: "integer" })],
        responses: { "200": { description: "The log.", content: { "text/plain": { schema: { type: "string" } } } } },
      }),
    },
  }
}

function listParameters(): Json[] {
  const repeatable = { type: "array", items: { type: "string" } }
  return [
    queryParameter("status", { type: "string", enum: JOB_PHASES }),
    queryParameter("tag", repeatable),
    queryParameter("label", { ...repeatable, description: "key:value or key=value." }),
    ...pageParameters(),
  ]
}
