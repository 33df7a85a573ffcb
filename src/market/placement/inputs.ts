import { largestDiskGib } from "../../clouds/machines/disk.ts"
import { defined } from "../../core/apis/defined.ts"
import type { ImageFacts } from "../../core/apis/image.ts"
import { JobReason, type JobSpec, type StoredJob, type Volume } from "../../core/apis/job.ts"
import type { Launch } from "../../core/apis/launch.ts"
import type { Architecture } from "../../core/apis/offer.ts"
import { parseGib } from "../../core/apis/quantity.ts"
import type { BucketPlace } from "../router/egress.ts"

/** State of the search for a connection that gives access to a bucket. */
export type BucketState =
  /** `connection` is the object's name, `type` the connection's. `region` is absent if the account may not read it. */
  | { state: "reached"; connection: string; type: string; region?: string }
  /** A provider is being asked. Check again shortly. */
  | { state: "looking" }
  /** `why` has the error of each connection. */
  | { state: "notReached"; why: string }

/** Finds the connections that give access to buckets. `operator/main.ts` and `api/main.ts` construct it. */
export interface Buckets {
  /**
   * Returns the project's first connection (by creation) that can read the bucket, or checks the named one. Answers
   * from the cache. A cache miss starts a lookup.
   */
  find(namespace: string, bucket: string, connection?: string): BucketState
  /** Waits for the answer, up to a few seconds. */
  whenFound(namespace: string, bucket: string, connection?: string): Promise<BucketState>
}

/** Result of the search for a job's buckets. */
export type VolumesVerdict =
  | { kind: "found"; volumes: Volumes; places: readonly BucketPlace[]; recorded: RecordedVolumes }
  | { kind: "looking"; message: string }
  | { kind: "notReached"; message: string }

type Volumes = NonNullable<JobSpec["volumes"]>

/** Access to the buckets, as in the job's status. */
export type RecordedVolumes = Record<string, { connection: string; region?: string }>

/** Looks for the buckets of a job that waits for a place. Returns undefined if the job has none. */
export function findVolumes({ metadata, spec, status }: StoredJob, buckets: Buckets): VolumesVerdict | undefined {
  const volumes = Object.entries(spec.volumes ?? {})
  if (volumes.length === 0) return undefined
  // A job with a VM needs no search. If the VM is lost, the job waits again.
  if (status?.phase !== undefined && status.phase !== "queued") return looking(volumes.map(([, { bucket }]) => bucket))
  const { namespace = "" } = metadata
  return judgeVolumes(
    volumes.map(([name, volume]) => ({
      name,
      volume,
      found: buckets.find(namespace, volume.bucket, volume.connection),
    })),
  )
}

/** Looks for the buckets of a job that is planned. Returns undefined if the job has none. */
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
  return judgeVolumes(await Promise.all(looked))
}

/** Returns the reason why a job without access to all its buckets waits. */
export function reasonToWait({ kind }: Exclude<VolumesVerdict, { kind: "found" }>): JobReason {
  return kind === "looking" ? JobReason.Queued : JobReason.BucketNotReached
}

interface Looked {
  name: string
  volume: Volume
  found: BucketState
}

/** Returns the verdict on all buckets. A bucket without access takes precedence over a pending search. Pure. */
export function judgeVolumes(all: readonly Looked[]): VolumesVerdict {
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
      reached.map(({ name, found: { connection, region } }) => [name, { connection, ...defined({ region }) }]),
    ),
  }
}

/** Returns the access that a Launch records. */
export function recordedVolumes(launch: Pick<Launch, "spec"> | undefined): RecordedVolumes | undefined {
  const entries = Object.entries(launch?.spec.run.volumes ?? {}).flatMap(([name, { connection }]) =>
    connection === undefined ? [] : [[name, { connection }] as const],
  )
  return entries.length === 0 ? undefined : Object.fromEntries(entries)
}

function looking(buckets: readonly string[]): VolumesVerdict {
  return {
    kind: "looking",
    message: `looking for the connection that gives access to ${[...new Set(buckets)].join(", ")}`,
  }
}

function notReached({ name, volume: { bucket, connection } }: Looked, why: string): string {
  const who =
    connection === undefined ? "no connection of the project has access" : `connection ${connection} has no access`
  return `volume ${name}: bucket ${bucket}: ${who} (${why}); correct the bucket or give a connection access to it`
}

/** State of the lookup of an image. */
export type ImageState =
  | ({ state: "known" } & ImageFacts)
  /** The registry is being asked. Check again shortly. */
  | { state: "looking" }
  /** The registry says that there is no such image: a pull by any VM fails. */
  | { state: "missing"; why: string }
  | { state: "unknown"; why: string }

/** Returns the CPU architectures of images. `operator/main.ts` and `api/main.ts` construct it. */
export interface Images {
  /** Answers from the cache. A cache miss starts a lookup. */
  find(namespace: string, image: string): ImageState
  /** Waits for the answer, up to a few seconds. */
  whenFound(namespace: string, image: string): Promise<Exclude<ImageState, { state: "looking" }>>
}

/** Looks up the image of a job that waits for a place. No other decision needs it. */
export function findImage({ metadata, spec, status }: StoredJob, images: Images): ImageState {
  if (status?.phase !== undefined && status.phase !== "queued") return { state: "looking" }
  return images.find(metadata.namespace ?? "", spec.image)
}

/**
 * Size of an image's disk space relative to its compressed size: the download, about twice as much unpacked, and room.
 */
const DISK_PER_IMAGE = 3

/** Returns the disk that an image needs on a cloud's VM, GiB; undefined if its size is unknown. Pure. */
export function imageDiskGib(image: ImageState, cloud: string): number | undefined {
  if (image.state !== "known" || image.sizeGib === undefined) return undefined
  return Math.min(Math.ceil(image.sizeGib * DISK_PER_IMAGE), largestDiskGib(cloud))
}

/** Returns the disk that a job and its image require on a cloud's VM, GiB; undefined: any size. Pure. */
export function requiredDiskGib(
  { resources }: Pick<JobSpec, "resources">,
  image: ImageState | undefined,
  cloud: string,
): number | undefined {
  const ofJob = resources?.disk === undefined ? undefined : parseGib(resources.disk)
  const ofImage = image && imageDiskGib(image, cloud)
  return ofJob === undefined && ofImage === undefined ? undefined : Math.max(ofJob ?? 0, ofImage ?? 0)
}

/** CPU architectures on which a job can be placed. */
export interface Platform {
  /** Allowed architectures; empty: any. */
  architectures: readonly Architecture[]
  /** Explanation for people. */
  note?: string
  /** Reason why no machine is possible: job and agent need different architectures. */
  conflict?: string
}

/**
 * Returns the architectures of both the job's image and the agent's image, as one VM runs both.
 * An unknown image gets the assumed architectures. If the agent's architectures are only assumed, a job for another
 * architecture is placed there anyway. Pure.
 * @param agent absent: VMs run the agent without an image, as on the local cloud, or no registry is asked
 */
export function choosePlatform(
  image: ImageState | undefined,
  agent: ImageState | undefined,
  assumed: readonly Architecture[],
): Platform {
  const own = platformOfJob(image, assumed)
  if (agent === undefined || agent.state === "looking") return own
  const allowed = agent.state === "known" ? agent.architectures : assumed
  if (allowed.length === 0) return own
  const isAny = own.architectures.length === 0
  const both = isAny ? allowed : own.architectures.filter((each) => allowed.includes(each))
  const names = allowed.join(" and ")
  if (both.length === 0 && agent.state === "known") {
    const conflict = `the job's image is for ${own.architectures.join(" and ")}, but Berth's agent image is for ${names} only: push the agent image for both, see docs/install.md`
    return { ...own, conflict }
  }
  if (both.length === 0 || (!isAny && both.length === own.architectures.length)) return own
  const why = agent.state === "known" ? `is for ${names} only` : `is assumed to be for ${names} (${agent.why})`
  const notes = [own.note, `Berth's agent image ${why}`].filter((note) => note !== undefined)
  return { architectures: both, note: notes.join("; ") }
}

function platformOfJob(image: ImageState | undefined, assumed: readonly Architecture[]): Platform {
  if (image?.state === "known") {
    const { architectures } = image
    return { architectures, ...(architectures.length === 1 && { note: `the image is for ${architectures[0]} only` }) }
  }
  if (image?.state !== "unknown" || assumed.length === 0) return { architectures: assumed }
  return { architectures: assumed, note: `the image is assumed to be for ${assumed.join(" and ")} (${image.why})` }
}
