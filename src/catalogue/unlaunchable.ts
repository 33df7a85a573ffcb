import type { Machine } from "../router/table.ts"

/** Machines that stand in price lists and can't be had. */
interface Rule {
  cloud: string
  types: RegExp
  /** In these regions only; absent: everywhere. */
  regions?: RegExp
  /** Only bought this way; absent: in no way. */
  provisioning?: "onDemand" | "spot"
  /** For docs/routing.md: why, and who says so. */
  reason: string
}

/** Looked up in November 2026. */
export const UNLAUNCHABLE: readonly Rule[] = [
  {
    cloud: "aws",
    types: /^(cc2|cr1|dl1|f1|g2|g3|g3s|g4ad|hs1|p2|p3|u-(9|12|18|24)tb1)\.|^i3\.metal$/,
    reason: "withdrawn: EC2 describes the type no more (its own API, October 2026)",
  },
  {
    cloud: "aws",
    types: /^(c1|m1|m2|t1)\./,
    reason: "boots paravirtual machine images only, and today's images are HVM (Amazon EC2 user guide)",
  },
  {
    cloud: "aws",
    types: /^a1\./,
    reason: "Amazon Linux 2023, which machines boot, needs a Graviton2 or later (its user guide)",
  },
  {
    cloud: "aws",
    types: /^g5g\./,
    reason: "Arm with a GPU: the ECS-optimized GPU image, which such machines boot, is published for x86 only",
  },
  {
    cloud: "aws",
    types:
      /^(c8a|c8gb|c8gn|c8i|c8ib|c8id|c8in|c9g|c9gd|i7i|i8g|i8ge|m8a|m8azn|m8gb|m8gn|m8i|m8ib|m8id|m8idb|m8idn|m8in|m9g|m9gd|r8a|r8gb|r8gn|r8i|r8ib|r8id|r8idb|r8idn|r8in|x8i)\.metal/,
    regions: /^us-east-1$/,
    reason: "only the price of Dedicated tenancy is known, which is another product",
  },
  {
    cloud: "aws",
    types: /\.metal/,
    regions: /^us-gov-/,
    reason: "part of these prices are those of Dedicated tenancy, and no source shows which",
  },
  {
    cloud: "gcp",
    types: /^a3-highgpu-[124]g$/,
    provisioning: "onDemand",
    reason: "sold as Spot or Flex-start only (Compute Engine's page on GPU machine types)",
  },
  {
    cloud: "azure",
    types: /^Standard_NC(6|12|24)r?s_v3$/,
    reason: "retired on 30 September 2025 (Azure's list of retired sizes)",
  },
  {
    cloud: "azure",
    types: /^Standard_NV(12|24|48)s_v3$|^Standard_NV(4|8|16|32)as_v4$/,
    reason: "retired on 30 September 2026 (Azure's list of retired sizes)",
  },
]

/** Why a machine can't be had there in that way; undefined: it can. */
export function whyUnlaunchable(
  { cloud, instanceType }: Pick<Machine, "cloud" | "instanceType">,
  region: string,
  provisioning: "onDemand" | "spot",
): string | undefined {
  return UNLAUNCHABLE.find(
    (rule) =>
      rule.cloud === cloud &&
      rule.types.test(instanceType) &&
      (rule.regions?.test(region) ?? true) &&
      (rule.provisioning ?? provisioning) === provisioning,
  )?.reason
}
