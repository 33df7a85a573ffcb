import type { JWTPayload } from "jose"
import { quote } from "../apis/field-error.ts"

/** Reasons for which a token names no groups, or not all. */
export type GroupsReason =
  | "GroupsOmitted"
  | "GroupsNested"
  | "GroupsNotAList"
  | "GroupsNotNames"
  | "GroupsMissing"
  | "GroupsEmpty"

/** Trouble with the groups of one token. */
export interface GroupsTrouble {
  reason: GroupsReason
  /** Sentences for the token's person. They depend on the token only, so they show nothing about projects. */
  message: string
  /** False if people without groups have such a token too. True: the person may have groups that Berth can't see. */
  isFault: boolean
}

/** Groups that a token names. */
export interface GroupsOfToken {
  names: string[]
  trouble?: GroupsTrouble
}

const UNSEEN = "So roles of your groups don't count."
const ADVICE = 'Ask an administrator to change the tokens: docs/people.md of Berth says how, under "Groups in tokens".'

/**
 * Returns the names in a claim with a list or a single string, as Kubernetes reads it. Other values are ignored, and
 * reported. Berth asks no issuer for the groups that a token only refers to.
 * @param claim name of the claim
 */
export function groupsIn(claims: JWTPayload, claim: string): GroupsOfToken {
  const { [claim]: value } = claims
  const entries: unknown[] = Array.isArray(value) ? value : value === undefined || value === null ? [] : [value]
  const names = entries.filter((entry) => typeof entry === "string").filter((name) => name !== "")
  const trouble = troubleOf(claims, claim, { value, entries, names })
  return { names, ...(trouble && { trouble }) }
}

interface ReadClaim {
  value: unknown
  entries: readonly unknown[]
  names: readonly string[]
}

function troubleOf(claims: JWTPayload, claim: string, { value, entries, names }: ReadClaim): GroupsTrouble | undefined {
  const name = quote(claim)
  const reference = referenceIn(claims, claim, names)
  if (reference !== undefined) {
    const listed = `Your token lists ${names.length === 0 ? "none" : "only some"} of your groups: it has ${reference} instead.`
    return fault(
      "GroupsOmitted",
      `${listed} Entra ID issues such tokens to people in too many groups, in most flows more than 200.`,
    )
  }
  if (entries.length === 0) {
    if (isNested(claims, claim))
      return fault(
        "GroupsNested",
        `Your token has ${name} only within another claim. Berth reads only top-level claims.`,
      )
    const isEmpty = Array.isArray(value)
    return {
      reason: isEmpty ? "GroupsEmpty" : "GroupsMissing",
      message: isEmpty
        ? `The claim ${name} of your token is an empty list, so only roles of your own user ID count.`
        : `Your token has no claim ${name}, so only roles of your own user ID count.`,
      isFault: false,
    }
  }
  if (names.length === entries.length) return undefined
  if (!Array.isArray(value) && typeof value !== "string")
    return fault("GroupsNotAList", `The claim ${name} of your token is ${kindOf(value)}. Berth needs a list of names.`)
  const count = entries.length - names.length
  const what = `Berth ignores ${count} of the ${entries.length} groups in your token, because ${count === 1 ? "it is not a name" : "they are not names"}.`
  return { reason: "GroupsNotNames", message: `${what} ${ADVICE}`, isFault: true }
}

function fault(reason: GroupsReason, message: string): GroupsTrouble {
  return { reason, message: `${message} ${UNSEEN} ${ADVICE}`, isFault: true }
}

/**
 * Returns the claim that refers to the groups: `_claim_names` of a distributed or aggregated claim
 * (https://openid.net/specs/openid-connect-core-1_0.html#AggregatedDistributedClaims), or Entra ID's `hasgroups`
 * (https://learn.microsoft.com/entra/identity/hybrid/connect/how-to-connect-fed-group-claims).
 */
function referenceIn(claims: JWTPayload, claim: string, names: readonly string[]): string | undefined {
  const { _claim_names: elsewhere, hasgroups } = claims
  if (isObject(elsewhere) && Object.hasOwn(elsewhere, claim)) return "_claim_names"
  return claim === "groups" && names.length === 0 && (hasgroups === true || hasgroups === "true")
    ? "hasgroups"
    : undefined
}

/** Returns true if the claim's name is a path into an object, such as Keycloak's `realm_access.roles`. */
function isNested(claims: JWTPayload, claim: string): boolean {
  const parts = claim.split(".")
  if (parts.length < 2) return false
  const found = parts.reduce<unknown>(
    (value, part) => (isObject(value) && Object.hasOwn(value, part) ? value[part] : undefined),
    claims,
  )
  return found !== undefined
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value)
}

function kindOf(value: unknown): string {
  return typeof value === "object" ? "an object" : `a ${typeof value}`
}

/** Groups of a person, as far as the token shows them. */
export interface PersonsGroups {
  groups?: readonly string[]
  groupsTrouble?: GroupsTrouble
}

/** Returns the sentences that a person with a role must read; undefined if the token lists the groups, or has none. */
export function groupsWarning({ groupsTrouble }: PersonsGroups): string | undefined {
  return groupsTrouble?.isFault === true ? groupsTrouble.message : undefined
}

/** Returns what a person without any role must read about the own token. */
export function groupsWithoutRole({ groups = [], groupsTrouble }: PersonsGroups): string {
  if (groupsTrouble !== undefined) return groupsTrouble.message
  const count = groups.length === 1 ? "one group, and it has" : `${groups.length} groups, and none has`
  return `Your token names ${count} a role here.`
}
