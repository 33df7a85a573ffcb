import Type from "typebox"
import { Identifier, KEY_PAIR, KEY_PAIR_FIELDS } from "../credential-fields.ts"
import { type ProviderDefinition, REGIONAL_NETWORK } from "../definition.ts"
import { bootDisk } from "./boot-disk.ts"
import { DISK_PRICES } from "./disk-prices.ts"
import { AWS } from "./machines.ts"
import { AWS_REJECTIONS } from "./rejections.ts"

/** ARN of an IAM role (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html). */
const ROLE_ARN = "^arn:aws(-cn|-us-gov)?:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,512}$"

const ROLE = {
  role_arn: Identifier(ROLE_ARN, "ARN of the IAM role that Berth assumes.", "arn:aws:iam::<account>:role/<name>"),
}

const BY_KEY = Type.Object(KEY_PAIR)
const BY_TOKEN = Type.Object(ROLE)
/** A key that may only assume the role. */
const BY_KEY_AND_ROLE = Type.Object({ ...KEY_PAIR, ...ROLE })

export const aws = {
  label: "AWS",
  credentials: {
    forms: [BY_KEY, BY_TOKEN, BY_KEY_AND_ROLE],
    fields: {
      role_arn: {
        label: "Role (ARN), instead of a key",
        flag: "--role-arn <arn>",
        help: "role that Berth assumes; alone, no secret is needed",
      },
      ...KEY_PAIR_FIELDS,
    },
    formFor: (has) => {
      if (!has("role_arn")) return BY_KEY
      return has("access_key_id") || has("secret_access_key") ? BY_KEY_AND_ROLE : BY_TOKEN
    },
    federation: {
      isUsed: (fields) => Object.hasOwn(fields, "role_arn"),
      needsToken: (fields) => Object.hasOwn(fields, "role_arn") && !Object.hasOwn(fields, "access_key_id"),
      // https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html
      audience: () => "sts.amazonaws.com",
      insteadOf: "access_key_id",
    },
  },
  images: { platform: "ecr" },
  buckets: {
    platform: "s3",
    egress: {
      default: { sameMacroRegion: 0.02, otherMacroRegion: 0.02, internet: 0.09 },
      asia: { sameMacroRegion: 0.09, otherMacroRegion: 0.09, internet: 0.12 },
      oceania: { sameMacroRegion: 0.1, otherMacroRegion: 0.1, internet: 0.114 },
      sa: { sameMacroRegion: 0.138, otherMacroRegion: 0.138, internet: 0.15 },
      me: { sameMacroRegion: 0.111, otherMacroRegion: 0.111, internet: 0.117 },
      af: { sameMacroRegion: 0.147, otherMacroRegion: 0.147, internet: 0.154 },
    },
  },
  vms: {
    billingName: "Amazon Web Services",
    settings: {
      network: { pattern: "vpc-[0-9a-f]{8,17}", allowed: "the id of a VPC, such as vpc-0a1b2c3d" },
      subnet: { pattern: "subnet-[0-9a-f]{8,17}", allowed: "ids of subnets, such as subnet-0a1b2c3d" },
      // https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volume-types.html
      disks: ["gp3", "gp2"],
      // gp2 has the lower maximum.
      largest: "16Ti",
      rules: [REGIONAL_NETWORK],
    },
    machines: AWS,
    bootDisk,
    diskPrices: DISK_PRICES,
    // https://aws.amazon.com/vpc/pricing/
    addressUsd: { onDemand: 0.005, spot: 0.005 },
    systems: { cpu: "ecs", gpu: "ecs" },
    // The metadata service. It isn't a name server.
    serviceAddresses: ["fd00:ec2::254"],
    spot: {
      // By IMDSv2. The document exists once the instance will be stopped or terminated
      // (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html).
      notice: {
        by: "metadata",
        // Of 120 s, 5 may pass before the agent sees the notice, and 30 are for uploads.
        containerSeconds: 85,
        path: "/latest/meta-data/spot/instance-action",
        headers: {},
        token: {
          path: "/latest/api/token",
          lifetimeHeader: "x-aws-ec2-metadata-token-ttl-seconds",
          header: "x-aws-ec2-metadata-token",
          // The maximum is 6 hours.
          lifetimeSeconds: 21_600,
        },
        isIn: (text) => text !== undefined,
      },
      // https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/billing-for-interrupted-spot-instances.html
      freeSeconds: 3600,
    },
    rejections: AWS_REJECTIONS,
    // EC2 keeps no client token of a rejected launch.
    createsLate: true,
  },
} as const satisfies ProviderDefinition
