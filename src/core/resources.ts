import { API_KEY, type StoredApiKey } from "./apis/apikey.ts"
import { CONNECTION, type StoredConnection } from "./apis/connection.ts"
import { CRON_JOB, type StoredCronJob } from "./apis/cronjob.ts"
import { JOB, type StoredJob } from "./apis/job.ts"
import { JOB_ARRAY, type StoredJobArray } from "./apis/jobarray.ts"
import { LAUNCH, type StoredLaunch } from "./apis/launch.ts"
import { MACHINE, type StoredMachine } from "./apis/machine.ts"
import { ORGANIZATION, type StoredOrganization } from "./apis/organization.ts"
import { PROJECT, type StoredProject } from "./apis/project.ts"
import { STATEMENT, type StoredStatement } from "./apis/statement.ts"
import { type StoredWebhook, WEBHOOK } from "./apis/webhook.ts"
import { declareResource } from "./kube/resource.ts"

/** Resources of Berth's kinds: their addresses at the API server, with the types of stored objects. */
export const API_KEYS = declareResource<StoredApiKey>(API_KEY)
export const CONNECTIONS = declareResource<StoredConnection>(CONNECTION)
export const CRON_JOBS = declareResource<StoredCronJob>(CRON_JOB)
export const JOB_ARRAYS = declareResource<StoredJobArray>(JOB_ARRAY)
export const JOBS = declareResource<StoredJob>(JOB)
export const LAUNCHES = declareResource<StoredLaunch>(LAUNCH)
export const MACHINES = declareResource<StoredMachine>(MACHINE)
export const ORGANIZATIONS = declareResource<StoredOrganization>(ORGANIZATION)
export const PROJECTS = declareResource<StoredProject>(PROJECT)
export const STATEMENTS = declareResource<StoredStatement>(STATEMENT)
export const WEBHOOKS = declareResource<StoredWebhook>(WEBHOOK)
