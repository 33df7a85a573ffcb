import { GetParameterCommand, type SSMClient } from "@aws-sdk/client-ssm"
import type { Offer } from "../../apis/offer.ts"
import { InvalidRequestError } from "../errors.ts"

/**
 * Where AWS publishes the ids of the machine images that have a Docker engine
 * (https://docs.aws.amazon.com/AmazonECS/latest/developerguide/retrieve-ecs-optimized_AMI.html), by architecture; those
 * for GPUs have NVIDIA's driver and container toolkit.
 */
const IMAGES = "/aws/service/ecs/optimized-ami/amazon-linux-2023"
const PARAMETERS: Readonly<Record<string, string>> = {
  amd64: `${IMAGES}/recommended`,
  arm64: `${IMAGES}/arm64/recommended`,
  "amd64 gpu": `${IMAGES}/gpu/recommended`,
}

/** Name of the public parameter that holds the image for an offer. @throws InvalidRequestError where there is none */
export function imageParameter({ architecture, gpu, instanceType }: Offer): string {
  const parameter = PARAMETERS[gpu === undefined ? architecture : `${architecture} gpu`]
  if (parameter !== undefined) return parameter
  const message = `AWS publishes no ECS-optimized image for GPUs on ${architecture}, which ${instanceType} has`
  throw new InvalidRequestError("NoImage", message)
}

/** The image that the parameter names now. @throws InvalidRequestError when it holds something else; the SDK's errors */
export async function imageOf(client: SSMClient, parameter: string, signal: AbortSignal): Promise<string> {
  const { Parameter } = await client.send(new GetParameterCommand({ Name: parameter }), { abortSignal: signal })
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
