import type { DiskPrice } from "../definition.ts"

/**
 * EBS, by the price list and by public copies of it (July 2018 to September 2026). Where only the price of gp2 is
 * published, gp3 costs 20 % less, as everywhere else (https://aws.amazon.com/ebs/general-purpose/).
 */
export const DISK_PRICES = {
  gp3: {
    byPrice: [
      [0.08, "us-east-1 us-east-2 us-west-2"],
      [0.0836, "eu-north-1"],
      [0.088, "ca-central-1 eu-west-1"],
      [0.0912, "ap-northeast-2 ap-south-1"],
      [0.0924, "eu-south-1"],
      [0.0928, "eu-west-2 eu-west-3"],
      [0.0952, "eu-central-1"],
      [0.096, "ap-northeast-1 ap-northeast-3 ap-southeast-1 ap-southeast-2 us-west-1"],
      [0.0968, "me-south-1"],
      [0.1047, "af-south-1"],
      [0.1056, "ap-east-1"],
      [0.152, "sa-east-1"],
    ],
    elsewhere: {
      us: 0.096,
      ca: 0.088,
      sa: 0.152,
      eu: 0.0952,
      asia: 0.1056,
      oceania: 0.096,
      me: 0.0968,
      af: 0.1047,
    },
    includedMibps: 125,
  },
  gp2: {
    byPrice: [
      [0.1, "us-east-1 us-east-2 us-west-2"],
      [0.1045, "eu-north-1"],
      [0.11, "ca-central-1 eu-west-1"],
      [0.114, "ap-northeast-2 ap-south-1"],
      [0.1155, "eu-south-1"],
      [0.116, "eu-west-2 eu-west-3"],
      [0.119, "eu-central-1"],
      [0.12, "ap-northeast-1 ap-northeast-3 ap-southeast-1 ap-southeast-2 us-west-1"],
      [0.121, "me-south-1"],
      [0.1309, "af-south-1"],
      [0.132, "ap-east-1"],
      [0.19, "sa-east-1"],
    ],
    elsewhere: { us: 0.12, ca: 0.11, sa: 0.19, eu: 0.119, asia: 0.132, oceania: 0.12, me: 0.121, af: 0.1309 },
  },
} as const satisfies Record<string, DiskPrice>
