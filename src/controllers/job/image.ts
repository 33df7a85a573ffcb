import type { StoredJob } from "../../apis/job.ts"
import type { Architecture } from "../../apis/offer.ts"

/** What is known, at the moment of asking, of what an image runs on. */
export type ImageState =
  | { state: "known"; architectures: readonly Architecture[] }
  /** Its registry is being asked: ask again shortly. */
  | { state: "looking" }
  | { state: "unknown"; why: string }

/** Tells what images run on; `wire.ts` gives it. */
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
