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

/** What a job is placed by: what its image runs on, or is taken to, and what there is to say about that. Pure. */
export function platformOf(
  image: ImageState | undefined,
  assumed: readonly Architecture[],
): { architectures: readonly Architecture[]; note?: string } {
  if (image?.state === "known") {
    const { architectures } = image
    return { architectures, ...(architectures.length === 1 && { note: `the image is for ${architectures[0]} only` }) }
  }
  if (image?.state !== "unknown" || assumed.length === 0) return { architectures: assumed }
  return { architectures: assumed, note: `the image is taken to be for ${assumed.join(" and ")} (${image.why})` }
}
