import { JOB_PHASES } from "../../apis/job.ts"
import { BODY_LIMIT_BYTES } from "../body/body.ts"
import { JobCreatedSchema, JobRecordSchema, JobSubmissionSchema } from "../schemas/job.ts"
import {
  createdResponse,
  IDEMPOTENCY_KEY,
  IF_NONE_MATCH,
  type Json,
  json,
  jsonOrYaml,
  operation,
  pageParameters,
  pageSchema,
  pathParameter,
  published,
  queryParameter,
  recordResponse,
  recordResponses,
} from "./parts.ts"

const TAGS = ["jobs"]

const SUBMISSION = {
  namePrefix: "train",
  image: "ghcr.io/acme/train:1.4",
  command: ["python", "train.py"],
  env: { EPOCHS: "3" },
  resources: { cpu: 4, memory: "16Gi", gpu: { model: "L4", count: 1 } },
  region: "eu",
  maxRetries: 2,
  tags: ["nightly"],
}

const CREATED = { job_id: "5ea07726-efd2-42ec-a095-6d7674666e31", name: "train-4kzrd9wb", status: "queued" }

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
  const job = pathParameter("job")
  return {
    "/jobs": {
      post: operation("createJob", "Submit a job (developer or higher).", {
        tags: TAGS,
        parameters: [IDEMPOTENCY_KEY],
        requestBody: {
          required: true,
          description: `At most ${BODY_LIMIT_BYTES} bytes.`,
          content: jsonOrYaml("JobSubmission", SUBMISSION),
        },
        responses: { "201": createdResponse("Registered.", json("JobCreated", CREATED)) },
        problems: [409, 422],
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
        parameters: [job, IF_NONE_MATCH],
        responses: recordResponses("The job.", json("JobRecord")),
        problems: [404],
      }),
    },
    "/jobs/{job}/cancel": {
      post: operation("cancelJob", "Cancel a job (developer or higher).", {
        tags: TAGS,
        parameters: [job],
        responses: { "200": recordResponse("The cancelled job.", json("JobRecord")) },
        problems: [404, 409],
      }),
    },
    "/jobs/{job}/logs": {
      get: operation("getJobLogs", "What the job's containers wrote (viewer or higher).", {
        tags: TAGS,
        parameters: [job, queryParameter("follow", { type: "boolean" }), queryParameter("tail", { type: "integer" })],
        responses: { "200": { description: "The log.", content: { "text/plain": { schema: { type: "string" } } } } },
        problems: [404],
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
