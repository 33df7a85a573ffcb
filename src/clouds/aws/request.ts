import { createHash } from "node:crypto"
import type { RunInstancesCommandInput, VolumeType } from "@aws-sdk/client-ec2"
import { orderedDisk } from "../../core/apis/disk.ts"
import { InvalidRequestError } from "../../core/outbound/errors.ts"
import type { LaunchSpec } from "../cloud.ts"
import { burstableOf } from "../machines/machines.ts"
import { specDigest } from "../spec-digest.ts"
import { bootDisk } from "./boot-disk.ts"
import type { NetworkChoice } from "./network.ts"
import { TAGS, tagList } from "./tags.ts"

/** EC2's own limit, before base64 (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html). */
const USER_DATA_BYTES = 16 * 1024

/** Root device of Amazon Linux images. */
const ROOT_DEVICE = "/dev/xvda"

/**
 * Returns the one request that creates the VM of a spec. Pure. The same spec in the same network gives exactly the same
 * request. EC2 accepts a client token again only with the same request.
 * @throws InvalidRequestError for a spec that EC2 can't accept
 */
export function runInstancesInput(spec: LaunchSpec, network: NetworkChoice): RunInstancesCommandInput {
  const { offer, imageId, userData } = spec
  if (imageId === undefined) throw new InvalidRequestError("MissingImage", "a VM on EC2 needs an image: spec.imageId")
  const bytes = Buffer.byteLength(userData)
  if (bytes > USER_DATA_BYTES) {
    const message = `user data has ${bytes} bytes; EC2 accepts at most ${USER_DATA_BYTES}`
    throw new InvalidRequestError("UserDataTooLarge", message)
  }
  const disk = orderedDisk(bootDisk(offer), spec.disk)
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
    // Whatever the account's default is: in unlimited mode, CPU above the baseline is charged and no price has it.
    ...(burstableOf("aws", offer.instanceType) !== undefined && { CreditSpecification: { CpuCredits: "standard" } }),
    UserData: Buffer.from(userData).toString("base64"),
    ...network,
    InstanceInitiatedShutdownBehavior: "terminate",
    MetadataOptions: { HttpEndpoint: "enabled", HttpTokens: "required", HttpPutResponseHopLimit: 1 },
    BlockDeviceMappings: [
      {
        DeviceName: ROOT_DEVICE,
        Ebs: {
          VolumeType: disk.type as VolumeType,
          VolumeSize: disk.sizeGib,
          ...(disk.performance !== undefined && {
            Iops: disk.performance.iops,
            Throughput: disk.performance.mibps,
          }),
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
        SpotOptions: {
          SpotInstanceType: "one-time",
          InstanceInterruptionBehavior: "terminate",
          ...(spec.ceilingUsd !== undefined && { MaxPrice: decimalText(spec.ceilingUsd) }),
        },
      },
    }),
  }
}

/** Returns a price without an exponent, as EC2 requires. */
function decimalText(usd: number): string {
  return usd.toFixed(5)
}

/**
 * Returns EC2's idempotency token of a Launch: 43 ASCII characters. It includes the installation: a restored copy of an
 * installation has Launches of the same names, and another id. Each subnet has its own token: a request that names
 * another subnet is another request (https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html).
 */
export function clientToken({ installation, name, exhaustedSubnets = 0 }: TokenParts): string {
  const attempt = exhaustedSubnets === 0 ? "" : `\0${exhaustedSubnets}`
  return createHash("sha256").update(`${installation}\0${name}${attempt}`).digest("base64url")
}

type TokenParts = Pick<LaunchSpec, "installation" | "name" | "exhaustedSubnets">
