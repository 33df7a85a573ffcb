import type { SSM } from "@aws-sdk/client-ssm"
import { nvidiaGpusOf, type Offer } from "../../core/apis/offer.ts"
import { InvalidRequestError } from "../../core/outbound/errors.ts"
import { findFamily } from "../machines/family.ts"
import { AWS, type AwsImage } from "./machines.ts"

/**
 * Returns the name of the public parameter that holds the image for an offer. @throws InvalidRequestError if there is
 * none
 */
export function imageParameter(offer: Offer): string {
  return AWS.images[imageKindOf(offer)].name
}

/** Returns the kind of the offer's image. @throws InvalidRequestError if there is none */
export function imageKindOf(offer: Offer): AwsImage {
  const { architecture, instanceType } = offer
  const family = findFamily<AwsImage>(AWS, offer)
  if (family !== undefined) return family.image
  // The table lacks the type, such as one of an installation's own offers.
  if (nvidiaGpusOf(offer) === undefined) return architecture
  if (architecture === "amd64") return "gpu"
  const message = `AWS publishes no ECS-optimized image for GPUs on ${architecture}, which ${instanceType} has`
  throw new InvalidRequestError("NoImage", message)
}

/**
 * Returns the image that the parameter currently names. @throws InvalidRequestError if it names none; the SDK's errors
 */
export async function readImage(client: SSM, parameter: string, signal: AbortSignal): Promise<string> {
  const { Parameter } = await client.getParameter({ Name: parameter }, { abortSignal: signal })
  const [image] = /ami-[0-9a-f]+/.exec(imageField(Parameter?.Value ?? "")) ?? []
  if (image !== undefined) return image
  throw new InvalidRequestError("NoImage", `the parameter ${parameter} names no machine image`)
}

/** The parameter is a JSON object that describes the image. */
function imageField(value: string): string {
  try {
    return String((JSON.parse(value) as { image_id?: unknown }).image_id)
  } catch {
    return value
  }
}
