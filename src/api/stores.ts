import { join } from "node:path"
import { defined } from "../core/apis/defined.ts"
import type { Logger } from "../core/telemetry/logger.ts"
import { FileLogStore } from "./logs/file-store.ts"
import type { JobRef, LogStore } from "./logs/store.ts"
import { FileUploadStore } from "./uploads/file-store.ts"
import { UPLOADS_FOLDER, type UploadStore } from "./uploads/store.ts"
import { FileObjects } from "./usage/objects.ts"
import { USAGE_FOLDER, UsageStore } from "./usage/store.ts"

/** Place of logs, uploads and usage: a folder, or else a bucket. */
export interface StoreOptions {
  /** Folder, with one replica only. */
  logsDir?: string
  logsBucket?: string
  logsPrefix?: string
  /** URL of an S3-compatible store other than AWS. */
  logsEndpoint?: string
  logsRegion?: string
  /** Size to which the log of a job is limited, MiB. Default 64. */
  logCapMib?: number
}

export interface Stores {
  logStore: LogStore
  uploadStore: UploadStore
  usageStore: UsageStore
}

/** Returns the stores of logs, uploads and usage. @throws Error when the options name no place for them */
export async function openStores(options: StoreOptions, logger: Logger): Promise<Stores> {
  const { logsDir, logsBucket: bucket, logsPrefix, logsEndpoint: endpoint, logsRegion: region } = options
  const cap = options.logCapMib === undefined ? {} : { capBytes: options.logCapMib * 1024 * 1024 }
  if (logsDir !== undefined) {
    const onRemovedForSpace = (job: JobRef): void => {
      logger.warn(
        { job },
        "the log volume is full: deleted an old log of the project with the most; enlarge the volume",
      )
    }
    return {
      logStore: new FileLogStore(logsDir, { ...cap, onRemovedForSpace }),
      uploadStore: new FileUploadStore(join(logsDir, UPLOADS_FOLDER)),
      usageStore: new UsageStore(new FileObjects(join(logsDir, USAGE_FOLDER))),
    }
  }
  if (bucket === undefined) {
    throw new Error("no place for logs: give --logs-dir (one replica) or --logs-bucket (any number of replicas)")
  }
  const { S3LogStore, s3Client } = await import("./logs/s3-store.ts")
  const { S3UploadStore } = await import("./uploads/s3-store.ts")
  const { S3Objects } = await import("./usage/s3-objects.ts")
  const client = s3Client({ ...defined({ endpoint, region }) })
  const prefix = logsPrefix === undefined ? "" : `${logsPrefix.replace(/\/+$/, "")}/`
  return {
    logStore: new S3LogStore({
      ...cap,
      client,
      bucket,
      prefix,
      onCompactionError: (err, job) => logger.warn({ err, job }, "the small pieces of a log could not be merged yet"),
    }),
    uploadStore: new S3UploadStore({ client, bucket, prefix: `${prefix}${UPLOADS_FOLDER}/` }),
    usageStore: new UsageStore(new S3Objects({ client, bucket, prefix: `${prefix}${USAGE_FOLDER}/` })),
  }
}
