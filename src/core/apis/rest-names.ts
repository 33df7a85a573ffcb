/** Names in REST of the fields of a CronJob's spec that have another name there. */
export const CRON_JOB_FIELDS = {
  schedule: "cron_spec",
  jobDefinition: "job_definition",
  active: "is_active",
  startingDeadlineSeconds: "starting_deadline_seconds",
  concurrencyPolicy: "concurrency_policy",
  successfulJobsHistoryLimit: "successful_jobs_history_limit",
  failedJobsHistoryLimit: "failed_jobs_history_limit",
} as const

/** Names in REST of the fields of a JobArray's spec that have another name there. */
export const ARRAY_FIELDS = {
  jobDefinition: "job_definition",
  maxFailed: "max_failed",
  successfulJobsHistoryLimit: "successful_jobs_history_limit",
  failedJobsHistoryLimit: "failed_jobs_history_limit",
  ttlSecondsAfterFinished: "ttl_seconds_after_finished",
} as const

/** Names in REST of the fields of a Connection's spec that have another name there. */
export const CONNECTION_FIELDS = { publicAddress: "public_address" } as const

/** Names in REST of the fields of a Machine's spec that have another name there. */
export const MACHINE_FIELDS = { hourlyPriceUsd: "hourly_price_usd", leaseSeconds: "lease_seconds" } as const

/** Returns the name in REST of a field of a Connection's spec. */
export function connectionFieldInRest(field: string): string {
  const names: Readonly<Record<string, string>> = CONNECTION_FIELDS
  return names[field] ?? field
}

/**
 * Names in a job's record in REST of the fields of its spec that have another name there. A submission has the names of
 * the spec.
 */
export const JOB_RECORD_FIELDS = {
  maxRetries: "max_retries",
  timeoutSeconds: "timeout_seconds",
  terminationGraceSeconds: "termination_grace_seconds",
  maxHourlyPriceUsd: "max_hourly_price_usd",
  maxCostUsd: "max_cost_usd",
  maxPreemptions: "max_preemptions",
  concurrencyGroup: "concurrency_group",
  retryRules: "retry_rules",
  idleLimit: "idle_limit",
  maxLostVms: "max_lost_vms",
  maxMemory: "max_memory",
  maxQueueSeconds: "max_queue_seconds",
  fallbackAfter: "fallback_after",
  secretEnv: "secret_env",
  ttlSecondsAfterFinished: "ttl_seconds_after_finished",
} as const
