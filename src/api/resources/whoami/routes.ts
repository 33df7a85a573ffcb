import Type, { type Static } from "typebox"
import { ROLES } from "../../../core/apis/apikey.ts"
import { COMPONENT, StringEnum } from "../../../core/apis/schema.ts"
import type { Principal } from "../../../core/identity/principal.ts"
import type { ProjectLimits } from "../../../core/quota/project-limits.ts"
import { inUtc } from "../../../core/records/job.ts"
import { nullable } from "../../../core/records/nullable.ts"
import { BODY_LIMIT_BYTES } from "../../http/body.ts"
import { namedSchema } from "../../http/json-schema.ts"
import { json, routeDeclarer } from "../../http/route.ts"

/** Limits of one caller, and of its project. */
export interface CallerLimits {
  /** 0: no limit. */
  requestsPerMinute: number
  /** 0: no limit. */
  discoveriesPerMinute: number
  followersPerPrincipal: number
  project: ProjectLimits
}

const limit = (description: string) => Type.Integer({ minimum: 0, description })

const LimitsSchema = Type.Object(
  {
    requests_per_minute: limit("Requests of one caller to one replica. 0: no limit."),
    discoveries_per_minute: limit("Requests to /resources. 0: no limit."),
    followed_logs: limit("Logs that one caller follows at the same time."),
    body_bytes: limit("Largest body of a request."),
    unfinished_jobs: limit("Jobs of the project that have not ended."),
    cronjobs: limit("Cronjobs of the project."),
    arrays: limit("Arrays of the project."),
    keys: limit("API keys of the project."),
    connections: limit("Connections of the project."),
    webhooks: limit("Webhooks of the project."),
    machines: limit("Machines that the project owns."),
    project_mib: limit("MiB of JSON that the project may store."),
    upload_mib: limit("MiB of one upload."),
    uploads_mib: limit("MiB of all uploads of the project. Each counts at least one."),
  },
  { description: "Limits of the caller and the project.", [COMPONENT]: "CallerLimits" },
)

/** Response of GET /whoami. */
export const WhoAmISchema = Type.Object({
  kind: StringEnum(["key", "person"], { description: "Kind of the credentials." }),
  id: Type.String({ description: "Id of the key, or user id of the person." }),
  name: nullable<string>("string", "Name of the key, or verified email address of the person."),
  role: StringEnum(ROLES, { description: "Role in the project." }),
  groups: nullable<number>("integer", "Number of groups that the person's token names. Null: a key."),
  warning: nullable<string>(
    "string",
    "Reason for which Berth can't see all groups of the person. Null: none is known.",
  ),
  project_id: Type.String(),
  organization_id: Type.String(),
  namespace: Type.String({ description: "Kubernetes namespace of the project." }),
  expires_at: nullable<string>("string", "Time at which the key or the token expires. Null: never."),
  limits: LimitsSchema,
  version: Type.String({ description: "Version of Berth." }),
})
export type WhoAmI = Static<typeof WhoAmISchema>

export interface WhoAmIServices {
  limits: CallerLimits
  version: string
}

const route = routeDeclarer<Principal, WhoAmIServices>({ tag: "whoami" })

export const whoAmIRoutes = [
  route("GET /whoami", {
    id: "whoAmI",
    summary: "Get the caller, its role, and its limits.",
    role: "viewer",
    responses: {
      200: json(
        namedSchema("WhoAmI", WhoAmISchema, {
          kind: "key",
          id: "b1c6a1f4-40c5-4f3a-8c26-0a4f9e9b2f35",
          name: "ci",
          role: "developer",
          groups: null,
          warning: null,
          project_id: "reports-77ab01c4d2",
          organization_id: "acme-9f3c01ab7e",
          namespace: "reports-77ab01c4d2",
          expires_at: "2027-01-01T00:00:00Z",
          limits: {
            requests_per_minute: 600,
            discoveries_per_minute: 30,
            followed_logs: 50,
            body_bytes: BODY_LIMIT_BYTES,
            unfinished_jobs: 20_000,
            cronjobs: 1000,
            arrays: 1000,
            keys: 500,
            connections: 100,
            webhooks: 50,
            machines: 50,
            project_mib: 256,
            upload_mib: 100,
            uploads_mib: 2048,
          },
          version: "1.0.0",
        } satisfies WhoAmI),
        "The caller.",
      ),
    },
    handle: ({ principal }, services) => ({ body: callerOf(principal, services) }),
  }),
]

function callerOf(principal: Principal, { limits, version }: WhoAmIServices): WhoAmI {
  const { kind, publicId, name = null, role, groupCount = null, warning = null, project, expiresAt } = principal
  return {
    kind: kind === "apiKey" ? "key" : "person",
    id: publicId,
    name,
    role,
    groups: groupCount,
    warning,
    project_id: project.id,
    organization_id: project.organizationId,
    namespace: project.namespace,
    expires_at: inUtc(expiresAt),
    limits: limitsOf(limits),
    version,
  }
}

function limitsOf({ requestsPerMinute, discoveriesPerMinute, followersPerPrincipal, project }: CallerLimits) {
  return {
    requests_per_minute: requestsPerMinute,
    discoveries_per_minute: discoveriesPerMinute,
    followed_logs: followersPerPrincipal,
    body_bytes: BODY_LIMIT_BYTES,
    unfinished_jobs: project.unfinishedJobs,
    cronjobs: project.cronJobs,
    arrays: project.jobArrays,
    keys: project.apiKeys,
    connections: project.connections,
    webhooks: project.webhooks,
    machines: project.machines,
    project_mib: project.projectMib,
    upload_mib: project.uploadMib,
    uploads_mib: project.uploadsMib,
  }
}
