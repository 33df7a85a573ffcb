import type { BucketAccess } from "../../core/protocol/protocol.ts"

/** Folder of the configuration in the driver's container. */
export const CONFIG_DIR = "/config"

/** Maximum failed uploads for each file that is not in its bucket yet. After more, the files count as rejected. */
const UPLOAD_TRIES = 3

/**
 * Returns the files of the driver's configuration: one remote for each volume, under the volume's name. Keys of S3 are
 * in files that AWS' SDK reads through a credential process, and again after they expire. So they can be renewed under
 * a running container. Pure. @throws TypeError for a value that would add lines to the configuration
 */
export function driverConfig(buckets: Readonly<Record<string, BucketAccess>>): Record<string, string> {
  const names = Object.keys(buckets)
  const files: Record<string, string> = {
    "rclone.conf": names.map((name) => remoteSection(name, buckets[name] as BucketAccess)).join("\n"),
    "profiles.conf": names
      .map((name) => section(`profile ${name}`, { credential_process: `cat ${keysPath(name)}` }))
      .join("\n"),
  }
  for (const [name, { keys, expiration }] of Object.entries(buckets)) {
    if (keys !== undefined) files[`${name}.json`] = credentialProcessOutput(keys, expiration)
  }
  return files
}

/**
 * Options of rclone's S3 backend: parts of a file from 32 MiB on are uploaded at the same time. By default only those of
 * 200 MiB are. rclone holds four parts of each file in memory.
 */
const UPLOADS = { upload_cutoff: "32M", chunk_size: "8M" }

function remoteSection(name: string, { remote, keys }: BucketAccess): string {
  if (keys === undefined) return section(name, remote)
  const byProcess = { env_auth: "true", profile: name, shared_credentials_file: `${CONFIG_DIR}/profiles.conf` }
  return section(name, { ...remote, ...byProcess, ...UPLOADS })
}

function section(title: string, options: Readonly<Record<string, string>>): string {
  const lines = Object.entries(options).map(([key, value]) => {
    if (/^[a-z_]+$/.test(key) && !/[\r\n\0]/.test(value)) return `${key} = ${value}`
    throw new TypeError(
      `option ${JSON.stringify(key)} of volume ${title} has a character that is not allowed in a configuration file`,
    )
  })
  return [`[${title}]`, ...lines, ""].join("\n")
}

function keysPath(name: string): string {
  return `${CONFIG_DIR}/${name}.json`
}

/**
 * Returns the output of a credential process
 * (https://docs.aws.amazon.com/sdkref/latest/guide/feature-process-credentials.html).
 */
function credentialProcessOutput(keys: NonNullable<BucketAccess["keys"]>, expiration: string | undefined): string {
  const { accessKeyId, secretAccessKey, sessionToken } = keys
  return JSON.stringify({
    Version: 1,
    AccessKeyId: accessKeyId,
    SecretAccessKey: secretAccessKey,
    ...(sessionToken !== undefined && { SessionToken: sessionToken }),
    ...(expiration !== undefined && { Expiration: expiration }),
  })
}

/** Progress of uploads: files that are not in their bucket yet, and failed uploads since the driver started. */
export interface UploadState {
  pending: number
  failures: number
}

/** Returns true if the uploads will not succeed. All failures count that happened since the last file was uploaded. */
export function isRefused(since: UploadState, now: UploadState): boolean {
  return now.failures - since.failures >= UPLOAD_TRIES * now.pending
}
