import type { REFUSALS } from "../core/apis/refusals.ts"

/** Class of a rejected launch. */
export type RefusalClass = (typeof REFUSALS)[number]

/** Property that an offer has in common with the rejected one. */
export type Common =
  | "offer"
  | "instanceType"
  /** Series of machine types, as `seriesOf` names it. */
  | "family"
  /** As `quotaOf` names it. */
  | "quota"
  | "region"
  | "provisioning"
  /** GPUs, or none. */
  | "gpu"
  /** So many vCPUs or more. */
  | "size"
  /** Spot, if the rejected machine was spot. If it was on demand, then both: an account may forbid only spot. */
  | "spot"

/** Extent of a rejection, and its remedy. */
export interface Meaning {
  /** An offer that has all of this in common with the rejected one is rejected too. []: every offer of the cloud is. */
  scope: readonly Common[]
  /** Machine types that the scope does not cover. If one of them is rejected, the rejection is about this type only. */
  except?: readonly string[]
  /** Different offers that must be rejected in a row before more than the scope is in cooldown. Absent: few. */
  patience?: number
  /** Action that ends the cause, for people. */
  remedy?: string
}

/** Rejection that Berth knows. What it leaves out follows from the class of the rejection. */
export interface KnownRejection extends Partial<Meaning> {
  /** Only rejections of this class. Absent: of any. */
  class?: RefusalClass
  /** Part of the cloud's code and message: `<code> <message>`. */
  says: RegExp
}
