import { createHash } from "node:crypto"
import type { RunInstancesCommandInput } from "@aws-sdk/client-ec2"
import { InvalidRequestError } from "../errors.ts"
import type { LaunchSpec } from "../provider.ts"
import { specDigest } from "../spec-digest.ts"
import type { NetworkChoice } from "./network.ts"
import { TAGS, tagList } from "./tags.ts"

/** EC2's own limit, before base64 (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html). */
const USER_DATA_BYTES = 16 * 1024

/** Where Amazon Linux images have their root file system. */
const ROOT_DEVICE = "/dev/xvda"

/** Size of a VM's one disk, GiB: the machine image has 30, and images for GPUs are large. */
const ROOT_GIB = { plain: 50, gpu: 100 }

/**
 * The one request that makes the VM of a spec. Pure: the same spec in the same network makes the same request, to the
 * last byte, as EC2 takes a client token for the same request only.
 * @throws InvalidRequestError for a spec that EC2 can't take
 */
export function runInstancesInput(spec: LaunchSpec, network: NetworkChoice): RunInstancesCommandInput {
  const { offer, imageId, userData } = spec
  if (imageId === undefined) throw new InvalidRequestError("MissingImage", "a VM on EC2 needs an image: spec.imageId")
  const bytes = Buffer.byteLength(userData)
  if (bytes > USER_DATA_BYTES) {
    const message = `user data has ${bytes} bytes; EC2 takes at most ${USER_DATA_BYTES}`
    throw new InvalidRequestError("UserDataTooLarge", message)
  }
  const tags = tagList({
    ...spec.tags,
    [TAGS.installation]: spec.installation,
    [TAGS.launch]: spec.name,
    [TAGS.spec]: specDigest(spec),
    Name: `berth-${spec.name}`,
  })
  return {
    ClientToken: clientToken(spec),
    MinCount: 1,
    MaxCount: 1,
    InstanceType: offer.instanceType as NonNullable<RunInstancesCommandInput["InstanceType"]>,
    ImageId: imageId,
    UserData: Buffer.from(userData).toString("base64"),
    ...network,
    InstanceInitiatedShutdownBehavior: "terminate",
    MetadataOptions: { HttpEndpoint: "enabled", HttpTokens: "required", HttpPutResponseHopLimit: 1 },
    BlockDeviceMappings: [
      {
        DeviceName: ROOT_DEVICE,
        Ebs: {
          VolumeType: "gp3",
          VolumeSize: offer.gpu === undefined ? ROOT_GIB.plain : ROOT_GIB.gpu,
          DeleteOnTermination: true,
          Encrypted: true,
        },
      },
    ],
    TagSpecifications: (["instance", "volume", "network-interface"] as const).map((ResourceType) => ({
      ResourceType,
      Tags: tags,
    })),
    ...(offer.provisioning === "spot" && {
      InstanceMarketOptions: {
        MarketType: "spot",
        SpotOptions: { SpotInstanceType: "one-time", InstanceInterruptionBehavior: "terminate" },
      },
    }),
  }
}

/**
 * EC2's idempotency token of a Launch: 43 ASCII characters. With the installation in it, because a restored copy of an
 * installation has the same names of Launches and another id.
 */
export function clientToken({ installation, name }: Pick<LaunchSpec, "installation" | "name">): string {
  return createHash("sha256").update(`${installation}\0${name}`).digest("base64url")
}
