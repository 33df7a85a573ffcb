import { type Offer, offerKey } from "../apis/offer.ts"
import { familyOf } from "./family.ts"

/** Who can pay for a VM: a Ready connection of the job's project, or a cloud that needs none (no `connection`). */
export interface Payer {
  cloud: string
  connection?: string
  /** The cloud's id of the account, project or subscription: what quotas are granted to. */
  account?: string
}

/** What is not asked for a while, because it refused. Every field that is given must match. */
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
  /** Absent: whoever pays. */
  connection?: string
  account?: string
  until: Date
}

/** Whether a rest, if it isn't over, keeps this payer from that offer. */
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

/** Whether nothing of a payer's cloud is asked for now. */
export function restsWholly(rest: Rest, payer: Payer): boolean {
  const { cloud, offer, region, zone, family, instanceType, provisioning, minCpu } = rest
  const narrower = [offer, region, zone, family, instanceType, provisioning, minCpu]
  const isWhole = narrower.every((field) => field === undefined)
  return isWhole && cloud === payer.cloud && isOf(rest, payer)
}
