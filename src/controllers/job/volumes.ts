import { JobReason, type JobSpec, type StoredJob, type Volume } from "../../apis/job.ts"
import type { Launch } from "../../apis/launch.ts"
import type { BucketPlace } from "../../router/egress.ts"

/** What is known, at the moment of asking, of who reaches a bucket. */
export type BucketState =
  /** `connection` is the object's name, `type` the connection's. Without a region where the account may not ask for it. */
  | { state: "reached"; connection: string; type: string; region?: string }
  /** Somebody is being asked: ask again shortly. */
  | { state: "looking" }
  /** `why` says of each connection why it does not do. */
  | { state: "notReached"; why: string }

/** Finds the connections that reach buckets; `wire.ts` gives it. */
export interface Buckets {
  /**
   * The first connection of the project (by its creation) that can read the bucket, or whether the named one can. Answers
   * from what is known, and has somebody asked where nothing is.
   */
  find(namespace: string, bucket: string, connection?: string): BucketState
  /** Waits for the answer, for some seconds at most. */
  whenFound(namespace: string, bucket: string, connection?: string): Promise<BucketState>
}

/** What has become of looking for a job's buckets. */
export type VolumesVerdict =
  | { kind: "found"; volumes: Volumes; places: readonly BucketPlace[]; recorded: RecordedVolumes }
  | { kind: "looking"; message: string }
  | { kind: "notReached"; message: string }

type Volumes = NonNullable<JobSpec["volumes"]>

/** As the job's status tells it. */
export type RecordedVolumes = Record<string, { connection: string; region?: string }>

/** Looks for the buckets of a job that waits for a place; undefined: it has none. */
export function findVolumes({ metadata, spec, status }: StoredJob, buckets: Buckets): VolumesVerdict | undefined {
  const volumes = Object.entries(spec.volumes ?? {})
  if (volumes.length === 0) return undefined
  // While a VM runs it nothing is to be found; if that one is lost, the job waits again.
  if (status?.phase !== undefined && status.phase !== "queued") return looking(volumes.map(([, { bucket }]) => bucket))
  const { namespace = "" } = metadata
  return judged(
    volumes.map(([name, volume]) => ({
      name,
      volume,
      found: buckets.find(namespace, volume.bucket, volume.connection),
    })),
  )
}

/** Looks for the buckets of a job that is to be planned; undefined: it has none. */
export async function whenVolumesFound(
  namespace: string,
  spec: Pick<JobSpec, "volumes">,
  buckets: Buckets,
): Promise<VolumesVerdict | undefined> {
  const volumes = Object.entries(spec.volumes ?? {})
  if (volumes.length === 0) return undefined
  const looked = volumes.map(async ([name, volume]) => ({
    name,
    volume,
    found: await buckets.whenFound(namespace, volume.bucket, volume.connection),
  }))
  return judged(await Promise.all(looked))
}

/** Why a job waits whose buckets are not all reached. */
export function reasonToWait({ kind }: Exclude<VolumesVerdict, { kind: "found" }>): JobReason {
  return kind === "looking" ? JobReason.Queued : JobReason.BucketNotReached
}

interface Looked {
  name: string
  volume: Volume
  found: BucketState
}

/** All must be reached; what nobody reaches comes before what is still being asked for. Pure. */
export function judged(all: readonly Looked[]): VolumesVerdict {
  const lost = all.find(({ found }) => found.state === "notReached")
  if (lost?.found.state === "notReached") return { kind: "notReached", message: notReached(lost, lost.found.why) }
  const open = all.filter(({ found }) => found.state === "looking")
  if (open.length > 0) return looking(open.map(({ volume }) => volume.bucket))
  const reached = all.flatMap(({ name, volume, found }) => (found.state === "reached" ? [{ name, volume, found }] : []))
  return {
    kind: "found",
    volumes: Object.fromEntries(
      reached.map(({ name, volume, found }) => [name, { ...volume, connection: found.connection }]),
    ),
    places: reached.flatMap(({ found: { type: cloud, region } }) => (region === undefined ? [] : [{ cloud, region }])),
    recorded: Object.fromEntries(
      reached.map(({ name, found: { connection, region } }) => [
        name,
        { connection, ...(region !== undefined && { region }) },
      ]),
    ),
  }
}

/** As far as a Launch tells it. */
export function volumesOf(launch: Pick<Launch, "spec"> | undefined): RecordedVolumes | undefined {
  const entries = Object.entries(launch?.spec.run.volumes ?? {}).flatMap(([name, { connection }]) =>
    connection === undefined ? [] : [[name, { connection }] as const],
  )
  return entries.length === 0 ? undefined : Object.fromEntries(entries)
}

function looking(buckets: readonly string[]): VolumesVerdict {
  return { kind: "looking", message: `looks for the connection that reaches ${[...new Set(buckets)].join(", ")}` }
}

function notReached({ name, volume: { bucket, connection } }: Looked, why: string): string {
  const who =
    connection === undefined ? "no connection of the project reaches it" : `connection ${connection} does not reach it`
  return `volume ${name}: bucket ${bucket}: ${who} (${why}); correct the bucket or give a connection access to it`
}
