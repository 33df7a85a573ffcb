import { CONNECTION_CACHE, CREDENTIALS_SECRET_CACHE } from "../accounts/caches.ts"
import type { StoredCronJob } from "../core/apis/cronjob.ts"
import type { StoredJob } from "../core/apis/job.ts"
import type { StoredJobArray } from "../core/apis/jobarray.ts"
import { ANNOTATIONS, isOwnFieldManager, LABELS } from "../core/apis/meta.ts"
import { submissionsOf } from "../core/apis/origin.ts"
import { ENV_SECRET_TYPE, type SecretKeys, secretKeys } from "../core/apis/secret-env.ts"
import { type StoredWebhook, WEBHOOK_SECRET_TYPE } from "../core/apis/webhook.ts"
import { byNamespace, NAMESPACE_INDEX } from "../core/identity/catch-up.ts"
import { IDENTITIES_NAMESPACE, SERVICE_ACCOUNTS, type ServiceAccount } from "../core/identity/machine-users.ts"
import { PROJECT_OF_NAMESPACE } from "../core/identity/projects.ts"
import { ROLE_BINDINGS, type RoleBinding } from "../core/identity/role-bindings.ts"
import { SEALING_KEYS_CACHE } from "../core/identity/sealing-keys.ts"
import { NAMESPACES, type Namespace, SECRETS, type Secret } from "../core/kube/core.ts"
import { keptFact } from "../core/kube/kept-fact.ts"
import { Reflector, type ReflectorOptions } from "../core/kube/reflector.ts"
import { type ApiObject, declareResource, type ManagedFields, type ServerMeta } from "../core/kube/resource.ts"
import type { IndexFunction } from "../core/kube/store.ts"
import {
  API_KEYS,
  CRON_JOBS,
  JOB_ARRAYS,
  JOBS,
  MACHINES,
  ORGANIZATIONS,
  PROJECTS,
  WEBHOOKS,
} from "../core/resources.ts"
import { systemCaches } from "../market/caches.ts"
import { creatorIndexes } from "./created-jobs.ts"
import { dependentIndexes } from "./prerequisites.ts"
import { UNSETTLED } from "./settled-jobs.ts"

/** Index of Webhooks by the Secret that they name, as `namespace/name`. */
export const WEBHOOK_SECRET_INDEX = "secret"

/** Options that the reflector of Webhooks must have. */
export const WEBHOOK_CACHE: Pick<ReflectorOptions<StoredWebhook>, "resource" | "indexes"> = {
  resource: WEBHOOKS,
  indexes: {
    [NAMESPACE_INDEX]: byNamespace,
    [WEBHOOK_SECRET_INDEX]: ({ metadata, spec }) =>
      spec.secretRef === undefined ? [] : [`${metadata.namespace}/${spec.secretRef.name}`],
  },
}

/** Options that the reflector of Secrets must have. They keep every other Secret out of this process's memory. */
export const WEBHOOK_SECRET_CACHE: Pick<ReflectorOptions<Secret>, "resource" | "fieldSelector"> = {
  resource: SECRETS,
  fieldSelector: `type=${WEBHOOK_SECRET_TYPE}`,
}

/**
 * True if no one but Berth has written fields of the Job: no `kubectl`, Helm or GitOps tool owns any. False if
 * `managedFields` was removed before this was asked.
 */
export const { keep: keepOwner, of: isWrittenByBerth } = keptFact(
  "true if only Berth has written an object",
  hasOwnWriters,
)

function hasOwnWriters({ managedFields }: ServerMeta): boolean {
  const isOwn = ({ manager = "", operation }: ManagedFields) => operation === "Update" && isOwnFieldManager(manager)
  return managedFields?.every(isOwn) ?? false
}

/** Options that the reflector of Jobs must have: it has those that are not settled. */
export const JOB_CACHE: Required<Pick<ReflectorOptions<StoredJob>, "resource" | "fieldSelector" | "transform">> = {
  resource: JOBS,
  ...UNSETTLED,
  transform: keepOwner,
}

/** Indexes that the cache of Jobs must have. */
export const jobIndexes: Record<string, IndexFunction<StoredJob>> = { submission: submissionsOf, ...dependentIndexes }

/** Options that the reflector of JobArrays must have. */
export const JOB_ARRAY_CACHE: Pick<ReflectorOptions<StoredJobArray>, "resource" | "indexes"> = {
  resource: JOB_ARRAYS,
  indexes: dependentIndexes,
}

/** Secret of type `berth.dev/env`, without its values. */
export interface EnvSecret extends ApiObject {
  keys: SecretKeys
}

/** Options that the reflector of these Secrets must have. No value of a Secret stays in this process's memory. */
export const ENV_SECRET_CACHE: Required<Pick<ReflectorOptions<EnvSecret>, "resource" | "fieldSelector" | "transform">> =
  {
    resource: declareResource<EnvSecret>(SECRETS),
    fieldSelector: `type=${ENV_SECRET_TYPE}`,
    transform: withoutValues,
  }

/** Annotations go too: `kubectl apply` stores the values in one. */
function withoutValues({
  metadata: { annotations: _, ...metadata },
  data,
}: ApiObject & Pick<Secret, "data">): EnvSecret {
  return { metadata, keys: secretKeys(data) }
}

/** Index of machine users and bindings by the ApiKey that their annotation names, as `namespace/name`. */
export const API_KEY_INDEX = "apiKey"

/** Options that the reflectors of machine users and of bindings must have. */
export const MACHINE_USER_CACHE: Pick<ReflectorOptions<ServiceAccount>, "resource" | "namespace" | "indexes"> = {
  resource: SERVICE_ACCOUNTS,
  namespace: IDENTITIES_NAMESPACE,
  indexes: { [API_KEY_INDEX]: (user) => keysNamedBy(user) },
}
export const BINDING_CACHE: Pick<ReflectorOptions<RoleBinding>, "resource" | "labelSelector" | "indexes"> = {
  resource: ROLE_BINDINGS,
  labelSelector: LABELS.apiKeyUid,
  indexes: { [API_KEY_INDEX]: (binding) => keysNamedBy(binding) },
}

/**
 * Returns the key of the ApiKey in the annotation of a machine user or binding. A binding whose annotation has another
 * namespace is ignored. The right to write bindings in one project must not affect another.
 */
export function keysNamedBy({ metadata }: ApiObject): string[] {
  const key = metadata.annotations?.[ANNOTATIONS.apiKey]
  const isElsewhere = metadata.namespace !== IDENTITIES_NAMESPACE && !key?.startsWith(`${metadata.namespace}/`)
  return key === undefined || isElsewhere ? [] : [key]
}

/**
 * Time of the last change of the spec. The time is later if an owner of spec fields has written other fields since.
 * Undefined if it is unknown.
 */
export const { keep: keepChangeTime, of: changeTimeOf } = keptFact("time of the last change of a spec", changeTime)

/** Options that the reflector of CronJobs must have. */
export const CRON_JOB_CACHE: Pick<ReflectorOptions<StoredCronJob>, "resource" | "transform"> = {
  resource: CRON_JOBS,
  transform: keepChangeTime,
}

/** managedFields has the fields of each writer and the time of that writer's last write, to the second. */
function changeTime({ managedFields = [] }: ServerMeta): Date | undefined {
  const times = managedFields
    .filter(({ fieldsV1 }) => typeof fieldsV1 === "object" && fieldsV1 !== null && "f:spec" in fieldsV1)
    .flatMap(({ time }) => (time === undefined ? [] : Date.parse(time)))
  return times.length === 0 ? undefined : new Date(Math.max(...times))
}

/** Options that the reflectors of namespaces and bindings of this controller must have. */
export const NAMESPACE_CACHE: Pick<ReflectorOptions<Namespace>, "resource" | "labelSelector"> = {
  resource: NAMESPACES,
  labelSelector: LABELS.projectUid,
}
export const MEMBER_BINDING_CACHE: Pick<ReflectorOptions<RoleBinding>, "resource" | "labelSelector"> = {
  resource: ROLE_BINDINGS,
  labelSelector: LABELS.projectUid,
}

/** Constructs the operator's caches. */
export function operatorCaches(
  base: Pick<ReflectorOptions<StoredJob>, "client" | "logger">,
  options: { systemNamespace: string; watchNamespace?: string | undefined },
) {
  const namespace = options.watchNamespace
  return {
    ...systemCaches(base, options),
    jobs: new Reflector({ ...base, ...JOB_CACHE, namespace, indexes: { ...creatorIndexes, ...jobIndexes } }),
    cronJobs: new Reflector({ ...base, ...CRON_JOB_CACHE, namespace }),
    jobArrays: new Reflector({ ...base, ...JOB_ARRAY_CACHE, namespace }),
    projects: new Reflector({ ...base, resource: PROJECTS, indexes: PROJECT_OF_NAMESPACE }),
    organizations: new Reflector({ ...base, resource: ORGANIZATIONS }),
    namespaces: new Reflector({ ...base, ...NAMESPACE_CACHE }),
    memberBindings: new Reflector({ ...base, ...MEMBER_BINDING_CACHE }),
    connections: new Reflector({ ...base, ...CONNECTION_CACHE, namespace }),
    secrets: new Reflector({ ...base, ...CREDENTIALS_SECRET_CACHE, namespace }),
    envSecrets: new Reflector({ ...base, ...ENV_SECRET_CACHE, namespace }),
    machines: new Reflector({ ...base, resource: MACHINES, namespace }),
    webhooks: new Reflector({ ...base, ...WEBHOOK_CACHE, namespace }),
    webhookSecrets: new Reflector({ ...base, ...WEBHOOK_SECRET_CACHE, namespace }),
    sealingKeys: new Reflector({ ...base, ...SEALING_KEYS_CACHE, namespace: options.systemNamespace }),
    apiKeys: new Reflector({ ...base, resource: API_KEYS, namespace }),
    users: new Reflector({ ...base, ...MACHINE_USER_CACHE }),
    bindings: new Reflector({ ...base, ...BINDING_CACHE, namespace }),
  }
}
