import type { TSchema } from "typebox"
import {
  CANCEL_JOBS_FINALIZER,
  CRON_JOB,
  type CronJob,
  type CronJobSpec,
  type StoredCronJob,
} from "../../apis/cronjob.ts"
import { ANNOTATIONS, API_VERSION } from "../../apis/meta.ts"
import { fromMetadataName, toMetadataName } from "../../apis/names.ts"
import { withoutNulls } from "../../apis/nulls.ts"
import { parseCpu } from "../../apis/quantity.ts"
import { scheduleFault } from "../../apis/schedule.ts"
import type { Fault } from "../../apis/validate.ts"
import { type Checked, checked, type Rule, type Unchecked } from "../../http/checked.ts"
import { inFormat } from "../../http/json-schema.ts"
import { inUtc } from "../jobs/record.ts"
import { JobSubmissionSchema } from "../jobs/schema.ts"
import { definitionRules, type JobIdentity, jobSpecOf, type SubmissionContext, withHint } from "../jobs/submission.ts"
import { OWNER, type Owner } from "../owner.ts"
import { updateTimeOf } from "../update-time.ts"
import {
  type CronJobChange,
  CronJobChangeSchema,
  type CronJobCreation,
  CronJobCreationSchema,
  type CronJobRecord,
  type JobDefinition,
} from "./schema.ts"

/** REST's names of a CronJob's own fields, where they are others. */
export const CRON_JOB_FIELDS = { schedule: "cron_spec", jobDefinition: "job_definition", active: "is_active" } as const

/** Checks the parsed body of POST /cronjobs. */
export function checkCreation(value: unknown, context: SubmissionContext): Checked<CronJobCreation> {
  return check(CronJobCreationSchema, value, context)
}

/** Checks the parsed body of PATCH /cronjobs/{name}: null means unchanged. */
export function checkChange(value: unknown, context: SubmissionContext): Checked<CronJobChange> {
  return check(CronJobChangeSchema, value, context)
}

function check<Body>(schema: TSchema, value: unknown, context: SubmissionContext): Checked<Body> {
  const explain = (fault: Fault, body: unknown) => withHint(aboutName(fault), body)
  const checks = { schema, rules: cronJobRules(), context, explain }
  return checked<Body, SubmissionContext>(withoutNulls(NULLS_OF_DEFINITION, value, "fields"), checks)
}

/** A definition's nulls are a submission's: of what it must not have, such as a name, it has none then. */
const NULLS_OF_DEFINITION = { properties: { job_definition: JobSubmissionSchema } }

/** The rules of a cronjob's creation and change. @param clouds the clouds that a job may name, for the document */
export function cronJobRules(clouds: readonly string[] = []): Rule<SubmissionContext>[] {
  return [SCHEDULE, NAMELESS, ...definitionRules(clouds).map(inDefinition), OWNER]
}

const SCHEDULE: Rule = {
  keywords: { "/properties/cron_spec": inFormat("cron") },
  faults: ({ cron_spec }) => {
    // The schema refuses an empty one.
    const fault = typeof cron_spec === "string" && cron_spec !== "" ? scheduleFault(cron_spec) : undefined
    return fault === undefined ? [] : [{ pointer: "/cron_spec", detail: `cron_spec ${fault}` }]
  },
}

/** Fields of a submission that a definition has not: null is allowed, as it means that they are left out. */
const NAMELESS: Rule = {
  keywords: {
    "/properties/job_definition/properties": Object.fromEntries(
      ["name", "namePrefix", "project_id", "organization_id"].map((field) => [field, { type: "null" }]),
    ),
  },
}

/** A rule of a definition, as a rule of the cronjob that has the definition. */
function inDefinition({ keywords = {}, faults, faultsNow }: Rule<SubmissionContext>): Rule<SubmissionContext> {
  const inside = (find: Rule<SubmissionContext>["faults"]) => (body: Unchecked, context: SubmissionContext) => {
    const definition = body["job_definition"]
    if (typeof definition !== "object" || definition === null) return []
    const found = find?.(definition as Unchecked, context) ?? []
    return found.map(({ pointer, detail }) => ({
      pointer: `/job_definition${pointer}`,
      detail: `job_definition.${detail}`,
    }))
  }
  const entries = Object.entries(keywords).map(([pointer, added]) => [`/properties/job_definition${pointer}`, added])
  return { keywords: Object.fromEntries(entries), faults: inside(faults), faultsNow: inside(faultsNow) }
}

const NAMES = ["/job_definition/name", "/job_definition/namePrefix"]

/** To say more of a name than that it is no known field. */
function aboutName(fault: Fault): Fault {
  if (!NAMES.includes(fault.pointer)) return fault
  const field = fault.pointer.slice("/job_definition/".length)
  const detail = `job_definition must not contain ${field}: each of its jobs is named <cronjob>-<UTC timestamp>`
  return { ...fault, detail }
}

/** The CronJob that a checked body asks for. */
export function cronJobOf(creation: CronJobCreation, identity: Omit<JobIdentity, "name">): CronJob {
  const { namespace, createdAt, idempotency } = identity
  return {
    apiVersion: API_VERSION,
    kind: CRON_JOB.kind,
    metadata: {
      // Every name that the contract allows has one, but for those like a UUID, which were refused.
      name: toMetadataName(creation.name) ?? creation.name,
      namespace,
      annotations: {
        [ANNOTATIONS.createdAt]: createdAt,
        ...(idempotency !== undefined && {
          [ANNOTATIONS.idempotencyKey]: idempotency.key,
          [ANNOTATIONS.requestHash]: idempotency.requestHash,
        }),
      },
    },
    spec: {
      schedule: creation.cron_spec,
      jobDefinition: definitionSpecOf(creation.job_definition),
      active: creation.is_active ?? true,
    },
  }
}

/** The spec with a checked change made; undefined when the change asks for nothing. */
export function changedSpec(spec: CronJobSpec, { cron_spec, job_definition, is_active }: CronJobChange) {
  if (cron_spec === undefined && job_definition === undefined && is_active === undefined) return undefined
  return {
    ...spec,
    ...(cron_spec !== undefined && { schedule: cron_spec }),
    ...(job_definition !== undefined && { jobDefinition: definitionSpecOf(job_definition) }),
    ...(is_active !== undefined && { active: is_active }),
  } satisfies CronJobSpec
}

/** The CronJob with, or without, what cancels its jobs when it is deleted; undefined when it is so already. */
export function withCascade(cronJob: StoredCronJob, cascade: boolean): StoredCronJob | undefined {
  const { deletionTimestamp, finalizers = [] } = cronJob.metadata
  const isAsked = finalizers.includes(CANCEL_JOBS_FINALIZER)
  // What is being deleted takes no finalizer any more.
  if (isAsked === cascade || deletionTimestamp !== undefined) return undefined
  const others = finalizers.filter((finalizer) => finalizer !== CANCEL_JOBS_FINALIZER)
  const wanted = cascade ? [...others, CANCEL_JOBS_FINALIZER] : others
  return { ...cronJob, metadata: { ...cronJob.metadata, finalizers: wanted } }
}

function definitionSpecOf({ cloud, ...definition }: JobDefinition): CronJobSpec["jobDefinition"] {
  const { cancelled: _, ...spec } = jobSpecOf({ ...definition, ...(cloud !== undefined && { cloud: [cloud] }) })
  return spec
}

/** A CronJob as the REST API shows it: every field of the contract, in the contract's words. */
export function cronJobRecordOf(cronJob: StoredCronJob, owner: Owner): CronJobRecord {
  const { metadata, spec, status } = cronJob
  return {
    id: metadata.uid,
    organization_id: owner.organizationId,
    project_id: owner.projectId,
    name: fromMetadataName(metadata.name),
    cron_spec: spec.schedule,
    job_definition: definitionOf(spec.jobDefinition),
    is_active: spec.active ?? true,
    last_triggered_at: inUtc(status?.lastTriggeredTime),
    created_at: metadata.creationTimestamp,
    updated_at: updateTimeOf(cronJob) ?? metadata.creationTimestamp,
  }
}

/** The definition as it was given: what was left out stays out, but for the API server's own defaults. */
function definitionOf(spec: CronJobSpec["jobDefinition"]): CronJobRecord["job_definition"] {
  const { cloud = [], region = [], resources, ...same } = spec
  return {
    ...same,
    ...(resources !== undefined && { resources: resourcesOf(resources) }),
    ...(cloud.length > 0 && { cloud: oneOrSeveral(cloud) }),
    ...(region.length > 0 && { region: oneOrSeveral(region) }),
  }
}

function oneOrSeveral(items: string[]): string | string[] {
  const [only = "", ...others] = items
  return others.length === 0 ? only : items
}

function resourcesOf({ cpu, ...same }: NonNullable<CronJobSpec["jobDefinition"]["resources"]>) {
  return { ...same, ...(cpu !== undefined && { cpu: parseCpu(cpu) }) }
}
