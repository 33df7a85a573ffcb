import { CronJobChangeSchema, CronJobCreationSchema, CronJobRecordSchema } from "../cronjobs/schema.ts"
import {
  bodySchema,
  createdResponse,
  IDEMPOTENCY_KEY,
  IF_MATCH,
  IF_NONE_MATCH,
  type Json,
  json,
  jsonOrYaml,
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
import { cronJobRules, NO_UUID } from "./rules.ts"

const TAGS = ["cronjobs"]

const CREATION = {
  name: "nightly-report",
  cron_spec: "30 3 * * MON-FRI",
  job_definition: { image: "ghcr.io/acme/report:2", cloud: "aws", region: "eu", timeoutSeconds: 3600 },
}

const RECORD = {
  id: "5ea07726-efd2-42ec-a095-6d7674666e31",
  organization_id: "acme-x1",
  project_id: "reports-x2",
  ...CREATION,
  job_definition: { ...CREATION.job_definition, maxRetries: 0, provisioning: "onDemand" },
  is_active: true,
  last_triggered_at: "2026-01-30T03:30:00Z",
  created_at: "2026-01-02T10:00:00Z",
  updated_at: "2026-01-30T03:30:01Z",
}

/**
 * The schemas that `cronJobPaths` refers to.
 * @param clouds those that a job may name here
 */
export function cronJobSchemas(clouds: readonly string[]): Json {
  const rules = cronJobRules(clouds)
  return {
    CronJobCreation: bodySchema(CronJobCreationSchema, { ...rules, "/properties/name": NO_UUID }),
    CronJobChange: bodySchema(CronJobChangeSchema, rules),
    CronJobRecord: published(CronJobRecordSchema),
    CronJobList: pageSchema("cronjobs", "CronJobRecord"),
  }
}

const NEXT = links({
  getCronJob: { name: "$response.body#/name" },
  changeCronJob: { name: "$response.body#/id" },
  deleteCronJob: { name: "$response.body#/id" },
})

const CASCADE = {
  ...queryParameter("cascade", { type: "boolean" }),
  description:
    "Whether its jobs that have not ended are cancelled. Default: as the cronjob's manifest asks, which is no unless it says so.",
}

/** The contract's cronjob endpoints. */
export function cronJobPaths(): Json {
  const cronjob = pathParameter("name")
  return {
    "/cronjobs": {
      post: operation("createCronJob", "Make a cronjob (developer or higher).", {
        tags: TAGS,
        parameters: [IDEMPOTENCY_KEY],
        requestBody: { required: true, content: jsonOrYaml("CronJobCreation", CREATION) },
        responses: { "201": { ...createdResponse("Made.", json("CronJobRecord", RECORD)), ...NEXT } },
        problems: [409, 422],
      }),
      get: operation("listCronJobs", "List cronjobs, newest first (viewer or higher).", {
        tags: TAGS,
        parameters: pageParameters(),
        responses: { "200": { description: "A page of cronjobs, active or not.", content: json("CronJobList") } },
      }),
    },
    "/cronjobs/{name}": {
      get: operation("getCronJob", "A cronjob (viewer or higher).", {
        tags: TAGS,
        parameters: [cronjob, IF_NONE_MATCH],
        responses: recordResponses("The cronjob.", json("CronJobRecord", RECORD)),
        problems: [404],
      }),
      patch: operation("changeCronJob", "Change a cronjob; job_definition replaces the whole (developer or higher).", {
        tags: TAGS,
        parameters: [cronjob, IF_MATCH],
        requestBody: { required: true, content: jsonOrYaml("CronJobChange", { is_active: false }) },
        responses: { "200": recordResponse("The changed cronjob.", json("CronJobRecord")) },
        problems: [404, 412],
      }),
      delete: operation("deleteCronJob", "Delete a cronjob; its jobs stay (developer or higher).", {
        tags: TAGS,
        parameters: [cronjob, CASCADE, IF_MATCH],
        responses: { "204": { description: "Deleted." } },
        problems: [404, 412],
      }),
    },
  }
}
