/**
 * Endpoints, parameters and fields that the contract of the REST API lists. Clients rely on these names, so none is ever
 * renamed. The contract has no path for some operations; these have Berth's own.
 */

interface Operation {
  parameters?: readonly string[]
  /** Paths of fields, as `DocumentField` has them. */
  body?: readonly string[]
  response?: readonly string[]
}

const inside = (path: string, names: readonly string[]) => names.map((name) => `${path}/${name}`)

const PAGE = ["offset", "limit"]
const PAGED = ["total", "offset", "limit"]
const SORTED_PAGE = ["name", "offset", "limit", "sort_by", "sort_order"]

/** "Job submission body", without the names of a job. */
const DEFINITION = [
  ...["image", "command", "args", "env", "volumes", "resources", "cloud", "region", "maxRetries", "labels", "tags"],
  ...inside("volumes{}", ["bucket", "mountPath", "connection", "prefix"]),
  ...inside("resources", ["cpu", "memory", "gpu", "gpu/vram", "gpu/count", "gpu/model"]),
]

/** "Job record". */
const JOB = [
  ...["id", "organization_id", "project_id", "name", "namePrefix", "status", "credentials_status", "vm_status"],
  ...["image", "command", "args", "env", "volumes", "resources", "cloud", "region", "labels", "tags"],
  ...["retry_count", "max_retries", "selected_provider", "selected_region", "selected_instance_type"],
  ...["vm_instance_id", "ip_address", "estimated_cost", "actual_cost", "created_at", "updated_at"],
  ...["last_heartbeat_at", "started_at", "ended_at", "timeout_seconds", "error_message"],
]

/** "Cronjob record". */
const CRON_JOB = [
  ...["id", "organization_id", "project_id", "name", "cron_spec", "job_definition", "is_active"],
  ...["last_triggered_at", "created_at", "updated_at"],
]
const CRON_JOB_BODY = ["cron_spec", "job_definition", "is_active", "project_id", "organization_id"]

/** "API key record". */
const KEY = ["id", "name", "role", "created_at", "expires_at"]

/** "Connection record". */
const CREDENTIALS = ["access_key_id", "secret_access_key", "gcp_project_id", "keyfile_json"]
const CONNECTION = ["id", "name", "type", "created_at", ...CREDENTIALS]

/** "Discovered resource item". */
const ITEM = ["id", "name", "connection_id", "connection_type", "platform", "metadata", "type"]

/** "Organization, member, project". */
const ORGANIZATION = ["id", "displayName", "category", "role"]
const MEMBER = ["userId", "email", "role"]
const PROJECT = ["id", "displayName", "organizationId"]

export const CONTRACT: Readonly<Record<string, Operation>> = {
  "POST /jobs": { body: ["name", "namePrefix", ...DEFINITION], response: ["job_id", "name", "status"] },
  "GET /jobs": {
    parameters: ["status", "tag", "label", ...PAGE],
    response: ["jobs", ...inside("jobs[]", JOB), ...PAGED],
  },
  "GET /jobs/{id}": { parameters: ["id"], response: JOB },
  "POST /jobs/{id}/cancel": { parameters: ["id"], response: JOB },
  "POST /cronjobs": {
    body: ["name", ...CRON_JOB_BODY, ...inside("job_definition", [...DEFINITION, "timeoutSeconds"])],
    response: CRON_JOB,
  },
  "GET /cronjobs": { parameters: PAGE, response: ["cronjobs", ...inside("cronjobs[]", CRON_JOB), ...PAGED] },
  "GET /cronjobs/{name}": { parameters: ["name"], response: CRON_JOB },
  "PATCH /cronjobs/{name}": { parameters: ["name"], body: CRON_JOB_BODY, response: CRON_JOB },
  "DELETE /cronjobs/{name}": { parameters: ["name"] },
  "POST /keys": { body: ["name", "role", "expires_at"], response: [...KEY, "value"] },
  "GET /keys": {
    parameters: SORTED_PAGE,
    response: ["keys", ...inside("keys[]", ["id", "name", "created_at"]), ...PAGED],
  },
  "GET /keys/{key_id}": { parameters: ["key_id"], response: KEY },
  "PATCH /keys/{key_id}": { parameters: ["key_id"], body: ["role"] },
  // The contract has {id} here, and key_id as the parameter of the other operations.
  "DELETE /keys/{key_id}": {},
  "GET /connections": {
    parameters: SORTED_PAGE,
    response: [
      ...["connections", ...inside("connections[]", CONNECTION), ...PAGED],
      ...inside("[]", ["id", "name", "type", "created_at"]),
    ],
  },
  "POST /connections": { body: ["name", "type", ...CREDENTIALS], response: CONNECTION },
  "GET /connections/{name}": { parameters: ["name"], response: CONNECTION },
  "PATCH /connections/{name}": { parameters: ["name"], body: ["type", ...CREDENTIALS], response: CONNECTION },
  "DELETE /connections/{name}": { parameters: ["name"] },
  "GET /resources/storages": {
    parameters: ["connection_id"],
    response: ["storages", ...inside("storages[]", ITEM)],
  },
  "GET /resources/repositories": {
    parameters: ["connection_id"],
    response: ["repositories", ...inside("repositories[]", ITEM)],
  },
  "GET /resources/virtual-machine-pools": {
    parameters: ["connection_id"],
    response: ["virtual_machine_pools", ...inside("virtual_machine_pools[]", ITEM)],
  },
  "GET /organizations": { parameters: PAGE, response: ["organizations", ...inside("organizations[]", ORGANIZATION)] },
  "POST /organizations": { body: ["name", "category"], response: ORGANIZATION },
  "PATCH /organizations/{org_id}": {
    parameters: ["org_id"],
    body: ["displayName", "category"],
    response: ORGANIZATION,
  },
  "GET /organizations/{org_id}/members": {
    parameters: ["org_id", ...PAGE],
    response: ["members", ...inside("members[]", MEMBER)],
  },
  "PUT /organizations/{org_id}/members/{member_user_id}": {
    parameters: ["org_id", "member_user_id"],
    body: ["role"],
  },
  "GET /organizations/{org_id}/projects": {
    parameters: ["org_id", ...PAGE],
    response: ["projects", ...inside("projects[]", PROJECT)],
  },
  "POST /organizations/{org_id}/projects": { parameters: ["org_id"], body: ["name"], response: PROJECT },
  "PATCH /projects/{project_id}": { parameters: ["project_id"], body: ["displayName"], response: PROJECT },
}
