import { type Offer, offerKey } from "../apis/offer.ts"

/** An account that can pay for a VM: a Ready connection of the job's project, or a cloud that needs none (no `connection`). */
export interface Payer {
  cloud: string
  connection?: string
  /** The cloud's id of the account, project or subscription: what quotas are granted to. */
  account?: string
}

/** Offers that are unavailable for some time after a refusal. Every field that is given must match. */
export interface Rest {
  cloud: string
  /** `offerKey` of the offer; absent: whatever the cloud offers. */
  offer?: string
  region?: string
  zone?: string
  /** As `familyOf` names it: quotas are granted by family. */
  family?: string
  instanceType?: string
  provisioning?: Offer["provisioning"]
  /** Only machines of at least so many vCPUs: a quota that is too small for one may do for a smaller one. */
  minCpu?: number
  /** Absent: for every payer. */
  connection?: string
  account?: string
  until: Date
}

/** Returns whether an active rest makes an offer unavailable for a payer. */
export function rests(rest: Rest, offer: Offer, payer: Payer): boolean {
  return (
    rest.cloud === offer.cloud &&
    (rest.offer === undefined || rest.offer === offerKey(offer)) &&
    (rest.region === undefined || rest.region === offer.region) &&
    (rest.zone === undefined || rest.zone === offer.zone) &&
    (rest.instanceType === undefined || rest.instanceType === offer.instanceType) &&
    (rest.provisioning === undefined || rest.provisioning === offer.provisioning) &&
    (rest.minCpu === undefined || rest.minCpu <= offer.cpu) &&
    (rest.family === undefined || rest.family === familyOf(offer.cloud, offer.instanceType)) &&
    isOf(rest, payer)
  )
}

function isOf(rest: Rest, payer: Payer): boolean {
  return (
    (rest.connection === undefined || rest.connection === payer.connection) &&
    (rest.account === undefined || rest.account === payer.account)
  )
}

/** Returns whether a rest makes the whole cloud unavailable for a payer. */
export function restsWholly(rest: Rest, payer: Payer): boolean {
  const { cloud, offer, region, zone, family, instanceType, provisioning, minCpu } = rest
  const narrower = [offer, region, zone, family, instanceType, provisioning, minCpu]
  const isWhole = narrower.every((field) => field === undefined)
  return isWhole && cloud === payer.cloud && isOf(rest, payer)
}

/** By cloud, how names of machine types begin with the family that its quotas count; the first match holds. */
const FAMILIES: Readonly<Record<string, readonly RegExp[]>> = {
  // m7g of m7g.large
  aws: [/^([^.]+)\./],
  // nvidia-tesla-t4 of n1-standard-4_1xnvidia-tesla-t4: the card has the quota; else n2 of n2-standard-4
  gcp: [/_\d+x(.+)$/, /^([a-z0-9]+)-/],
  // Das_v5 of Standard_D16-8as_v5
  azure: [/^(?:Standard|Basic)_(.+)$/],
}

/**
 * Returns the family of a machine type, by its cloud's naming: clouds grant quotas by family. A name that no rule
 * matches is a family of its own. Sources: the clouds' pages on naming and on quotas.
 */
export function familyOf(cloud: string, instanceType: string): string {
  for (const pattern of FAMILIES[cloud] ?? []) {
    const family = pattern.exec(instanceType)?.[1]
    if (family !== undefined) return cloud === "azure" ? family.replace(/\d+(-\d+)?/, "") : family
  }
  return instanceType
}
