import { JOB_PHASES } from "../../apis/job.ts"
import { BODY_LIMIT_BYTES } from "../../http/body.ts"
import { type JobPlanRecord, JobPlanSchema } from "../jobs/plan-schema.ts"
import { JobCreatedSchema, JobRecordSchema, JobSubmissionSchema } from "../jobs/schema.ts"
import {
  bodySchema,
  IDEMPOTENCY_KEY,
  IF_MATCH,
  IF_NONE_MATCH,
  type Json,
  json,
  jsonOrYaml,
  LOCATION,
  links,
  operation,
  pageParameters,
  pageSchema,
  pathParameter,
  published,
  queryParameter,
  recordResponse,
  recordResponses,
} from "./parts.ts"
import { submissionRules } from "./rules.ts"

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

const DRY_RUN = queryParameter("dry_run", {
  type: "boolean",
  default: false,
  description: "true: validate like a real submission and answer with the plan; nothing is made.",
})

const PLAN = {
  dry_run: true,
  name: "train-4kzrd9wb",
  verdict: "placeable",
  reason: "Placed",
  message:
    "gcp g2-standard-4 in europe-west4 (on demand, 4 vCPU, 16 GiB, 1 × L4, $0.7787/h): cheapest of 86,000 offers " +
    "that fits, and the only one; price of 2026-10-01; expected to cost $0.7787",
  estimated_cost: 0.7787,
  placements: [
    {
      provider: "gcp",
      region: "europe-west4",
      zone: null,
      instance_type: "g2-standard-4",
      provisioning: "onDemand",
      connection: null,
      hourly_price_usd: 0.7787,
      price_date: "2026-10-01",
      estimated_cost_usd: 0.7787,
      cpu: 4,
      memory: "16Gi",
      architecture: "amd64",
      gpu: { vram: "24Gi", count: 1, model: "L4" },
      why: "gcp g2-standard-4 in europe-west4 (on demand, 4 vCPU, 16 GiB, 1 × L4, $0.7787/h): $0.7787 in all",
    },
  ],
} satisfies JobPlanRecord

/**
 * The schemas that `jobPaths` refers to.
 * @param clouds those that a job may name here
 */
export function jobSchemas(clouds: readonly string[]): Json {
  return {
    JobSubmission: bodySchema(JobSubmissionSchema, submissionRules(clouds)),
    JobCreated: published(JobCreatedSchema),
    JobPlan: published(JobPlanSchema),
    JobRecord: published(JobRecordSchema),
    JobList: pageSchema("jobs", "JobRecord"),
  }
}

const FOLLOW = queryParameter("follow", {
  type: "boolean",
  default: false,
  description: "true: the answer goes on until the job has ended.",
})

const TAIL = queryParameter("tail", {
  type: "integer",
  minimum: 0,
  maximum: Number.MAX_SAFE_INTEGER,
  description: "Only so many last lines. Default: all.",
})

/** The contract's job endpoints. */
export function jobPaths(): Json {
  const job = pathParameter("id")
  return {
    "/jobs": {
      post: operation("createJob", "Submit a job (developer or higher).", {
        tags: TAGS,
        parameters: [DRY_RUN, IDEMPOTENCY_KEY],
        requestBody: {
          required: true,
          description: `At most ${BODY_LIMIT_BYTES} bytes.`,
          content: jsonOrYaml("JobSubmission", SUBMISSION),
        },
        responses: {
          "200": { description: "With dry_run=true: the plan. Nothing was made.", content: json("JobPlan", PLAN) },
          "201": {
            description: "Registered.",
            headers: LOCATION,
            content: json("JobCreated", CREATED),
            ...links({
              getJob: { id: "$response.body#/job_id" },
              cancelJob: { id: "$response.body#/name" },
              getJobLogs: { id: "$response.body#/job_id" },
            }),
          },
        },
        problems: [409, 422],
      }),
      get: operation("listJobs", "List jobs, newest first (viewer or higher).", {
        tags: TAGS,
        parameters: listParameters(),
        responses: { "200": { description: "A page of jobs.", content: json("JobList") } },
      }),
    },
    "/jobs/{id}": {
      get: operation("getJob", "A job (viewer or higher).", {
        tags: TAGS,
        parameters: [job, IF_NONE_MATCH],
        responses: recordResponses("The job.", json("JobRecord")),
        problems: [404],
      }),
    },
    "/jobs/{id}/cancel": {
      post: operation("cancelJob", "Cancel a job (developer or higher).", {
        tags: TAGS,
        parameters: [job, IF_MATCH],
        responses: { "200": recordResponse("The cancelled job.", json("JobRecord")) },
        problems: [404, 409, 412, 413, 415],
      }),
    },
    "/jobs/{id}/logs": {
      get: operation("getJobLogs", "What the job's containers wrote (viewer or higher).", {
        tags: TAGS,
        parameters: [job, FOLLOW, TAIL],
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
    queryParameter("label", {
      ...repeatable,
      items: { type: "string", pattern: "^[^:=]+[:=]" },
      description: "key:value or key=value.",
    }),
    ...pageParameters(),
  ]
}
