import { JobReason, type JobSpec, type StoredJob, type Volume } from "../apis/job.ts"
import type { Launch } from "../apis/launch.ts"
import type { Architecture } from "../apis/offer.ts"
import type { BucketPlace } from "../router/egress.ts"

/** What is known, at the moment of asking, of who reaches a bucket. */
export type BucketState =
  /** `connection` is the object's name, `type` the connection's. Without a region where the account may not ask for it. */
  | { state: "reached"; connection: string; type: string; region?: string }
  /** Somebody is being asked: ask again shortly. */
  | { state: "looking" }
  /** `why` says of each connection why it does not do. */
  | { state: "notReached"; why: string }

/** Finds the connections that reach buckets; `operator.ts` and `api-server.ts` construct it. */
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

/** What is known, at the moment of asking, of what an image runs on. */
export type ImageState =
  | { state: "known"; architectures: readonly Architecture[] }
  /** Its registry is being asked: ask again shortly. */
  | { state: "looking" }
  | { state: "unknown"; why: string }

/** Tells what images run on; `operator.ts` and `api-server.ts` construct it. */
export interface Images {
  /** Answers from what is known, and has the registry asked where nothing is. */
  find(namespace: string, image: string): ImageState
  /** Waits for the answer, for some seconds at most. */
  whenFound(namespace: string, image: string): Promise<Exclude<ImageState, { state: "looking" }>>
}

/** Looks at the image of a job that waits for a place: for the others nothing is to be decided by it. */
export function findImage({ metadata, spec, status }: StoredJob, images: Images): ImageState {
  if (status?.phase !== undefined && status.phase !== "queued") return { state: "looking" }
  return images.find(metadata.namespace ?? "", spec.image)
}

/** What a job is placed by. */
export interface Platform {
  /** Machines of these only; none: of any. */
  architectures: readonly Architecture[]
  /** What there is to say about that. */
  note?: string
  /** Why there is no machine at all: job and agent run on different ones. */
  conflict?: string
}

/**
 * Returns what both the job's image and the agent's run on, as one VM runs both. Where nothing is known of an image, it is
 * taken to run on what is assumed. A job that runs on nothing else is placed there nevertheless when that is only assumed
 * of the agent's image. Pure.
 * @param agent absent: VMs run the agent without an image, as on the local cloud, or no registry is asked
 */
export function platformOf(
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
    const conflict = `the job's image is for ${own.architectures.join(" and ")}, and Berth's agent image for ${names} only: push the agent image for both, as docs/install.md has it`
    return { ...own, conflict }
  }
  if (both.length === 0 || (!isAny && both.length === own.architectures.length)) return own
  const why = agent.state === "known" ? `is for ${names} only` : `is taken to be for ${names} (${agent.why})`
  const notes = [own.note, `Berth's agent image ${why}`].filter((note) => note !== undefined)
  return { architectures: both, note: notes.join("; ") }
}

function platformOfJob(image: ImageState | undefined, assumed: readonly Architecture[]): Platform {
  if (image?.state === "known") {
    const { architectures } = image
    return { architectures, ...(architectures.length === 1 && { note: `the image is for ${architectures[0]} only` }) }
  }
  if (image?.state !== "unknown" || assumed.length === 0) return { architectures: assumed }
  return { architectures: assumed, note: `the image is taken to be for ${assumed.join(" and ")} (${image.why})` }
}
