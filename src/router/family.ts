/** How each cloud's names of machine types begin with the family that its quotas count; the first match holds. */
const FAMILIES: Readonly<Record<string, readonly RegExp[]>> = {
  // m7g of m7g.large
  aws: [/^([^.]+)\./],
  // nvidia-tesla-t4 of n1-standard-4_1xnvidia-tesla-t4: the card has the quota; else n2 of n2-standard-4
  gcp: [/_\d+x(.+)$/, /^([a-z0-9]+)-/],
  // Das_v5 of Standard_D16-8as_v5
  azure: [/^(?:Standard|Basic)_(.+)$/],
}

/**
 * The family of a machine type, by its cloud's naming: what quotas are granted for. A name that no rule knows is a
 * family of its own. Sources: the clouds' pages on naming and on quotas.
 */
export function familyOf(cloud: string, instanceType: string): string {
  for (const pattern of FAMILIES[cloud] ?? []) {
    const family = pattern.exec(instanceType)?.[1]
    if (family !== undefined) return cloud === "azure" ? family.replace(/\d+(-\d+)?/, "") : family
  }
  return instanceType
}
