/** By cloud, how names of machine types begin with their family; the first match holds. */
const FAMILIES: Readonly<Record<string, readonly RegExp[]>> = {
  // m7g of m7g.large
  aws: [/^([^.]+)\./],
  // nvidia-tesla-t4 of n1-standard-4_1xnvidia-tesla-t4: the card has the quota; else n2 of n2-standard-4
  gcp: [/_\d+x(.+)$/, /^([a-z0-9]+)-/],
  // Das_v5 of Standard_D16-8as_v5
  azure: [/^(?:Standard|Basic)_(.+)$/],
}

/**
 * Returns the family of a machine type, by its cloud's naming. A name that no rule matches is a family of its own.
 * Sources: the clouds' pages on naming.
 */
export function familyOf(cloud: string, instanceType: string): string {
  for (const pattern of FAMILIES[cloud] ?? []) {
    const family = pattern.exec(instanceType)?.[1]
    if (family !== undefined) return cloud === "azure" ? family.replace(/\d+(-\d+)?/, "") : family
  }
  return instanceType
}

/**
 * The families that share one quota of vCPUs, by the letters at the start of the name; the first match holds.
 * - AWS: https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html ("Running On-Demand Standard (A, C,
 *   D, H, I, M, R, T, Z) instances" and the like; spot requests have quotas of the same groups)
 * - GCP: https://cloud.google.com/compute/resource-usage#cpu_quota (CPUS counts E2, N1 and shared cores; other families
 *   have a quota of their own)
 */
const QUOTAS: Readonly<Record<string, readonly (readonly [RegExp, string])[]>> = {
  aws: [
    [/^(g|gr|vt)\d/, "G and VT"],
    [/^inf\d/, "Inf"],
    [/^trn\d/, "Trn"],
    [/^dl\d/, "DL"],
    [/^hpc\d/, "HPC"],
    [/^p\d/, "P"],
    [/^f\d/, "F"],
    [/^x\d/, "X"],
    [/^u-|^u\d/, "High Memory"],
    [/^[acdhimrtz]/, "Standard"],
  ],
  gcp: [[/^(e2|n1|f1|g1)-/, "CPUS"]],
}

/** Returns the quota that counts the vCPUs of a machine type. Without a known group it is the family's. */
export function quotaOf(cloud: string, instanceType: string): string {
  const found = QUOTAS[cloud]?.find(([pattern]) => pattern.test(instanceType))
  return found?.[1] ?? familyOf(cloud, instanceType)
}
