/**
 * Bounds of user input, shared by the CRDs and the REST API. Kubernetes' CEL rules need a bound on each string, list
 * and map. Lengths are in characters, counts in items. `…Bytes` bound all texts of a field together, in UTF-8: a Job's
 * spec has at most about 64 KiB, far below etcd's 1.5 MiB for an object.
 */
export const LIMITS = {
  jobName: 128,
  namePrefix: 100,
  image: 512,
  commandItems: 256,
  commandItem: 16_384,
  /** For `command` and for `args`. */
  commandBytes: 16_384,
  envItems: 256,
  /** Variables that Berth adds to those of a job. */
  ownEnvItems: 8,
  envName: 256,
  /** Value of a variable from a Secret, and of a variable of a stored Job. */
  envValue: 32_768,
  envBytes: 16_384,
  secretEnvItems: 64,
  secretEnvBytes: 4096,
  volumes: 16,
  volumeName: 63,
  volumeBytes: 4096,
  bucket: 255,
  mountPath: 512,
  /** Files of a working directory: their bytes in total, and their number with links and folders. */
  workdirBytes: 2 * 1024 ** 3,
  workdirEntries: 100_000,
  prefix: 1024,
  /** Characters that Berth adds to the prefix of a checkpoint volume: the job's id and the volume's name. */
  checkpointFolder: 128,
  clouds: 8,
  regions: 32,
  region: 64,
  /** Subnets of a connection in one region, and regions with subnets. */
  subnets: 16,
  subnetRegions: 32,
  /** Maximum for one connection. The garbage collection sends one list request for each region. */
  usedRegions: 128,
  labels: 64,
  labelKey: 317,
  labelValue: 1024,
  labelBytes: 4096,
  tags: 64,
  tag: 256,
  tagBytes: 2048,
  gpuModel: 64,
  gpuCount: 64,
  maxRetries: 100,
  maxPreemptions: 10_000,
  priority: 100,
  /** Name of a concurrency group, and its limit. */
  groupName: 63,
  groupLimit: 10_000,
  /** Jobs and arrays that one job or array waits for. */
  prerequisites: 20,
  retryRules: 8,
  /** Exit codes and ranges of them in one retry rule. */
  retryExitCodes: 32,
  /**
   * VMs that a job gets after its first one: by its retry rules, after lost VMs, and after transient faults, all together.
   * No limit of a rule is higher.
   */
  newVms: 20,
  terminationGraceSeconds: 3600,
  /** 30 days, also the default timeout of a job. A finite lifetime ends an orphaned VM. */
  timeoutSeconds: 30 * 24 * 3600,
  maxQueueSeconds: 30 * 24 * 3600,
  ttlSecondsAfterFinished: 10 * 365 * 24 * 3600,
  maxHourlyPriceUsd: 100_000,
  maxCostUsd: 10_000_000,
  /** metadata.name of a Connection or ApiKey. Every name of the contract fits (50 characters, see names.ts). */
  connectionName: 63,
  keyName: 63,
  cronJobName: 104,
  /** A label of its jobs has it as value. */
  jobArrayName: 63,
  arraySize: 10_000,
  matrixVariables: 8,
  matrixValue: 256,
  matrixBytes: 65_536,
  /** Characters of a set of indexes. Every second index of the largest array has 25,000. */
  indexes: 65_536,
  /** Attempts at one index of an array. */
  arrayAttempts: 100,
  webhookName: 63,
  /** Name of a machine. */
  machineName: 63,
  /** Address of a webhook's receiver. */
  receiver: 2048,
  /** One field of a connection's credentials. A Google key file has about 2400 characters. */
  credential: 1024,
  /** Maximum whose encrypted form fits into sealedCredentials, however it is escaped. */
  keyfile: 8000,
  sealedCredentials: 65_536,
  message: 4096,
  /** Characters of the last line of a failed container's output. */
  lastLine: 256,
  /** Retries on a new VM that a job's status keeps, the latest ones. */
  retries: 4,
  conditions: 16,
  refusedOffers: 10,
} as const

/** Resources of a job without `resources` (the contract's default). */
export const DEFAULT_RESOURCES = { cpu: 1, memory: "4Gi" } as const
