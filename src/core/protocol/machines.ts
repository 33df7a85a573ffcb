import { createHmac, timingSafeEqual } from "node:crypto"
import Type, { type Static } from "typebox"
import { LIMITS } from "../apis/field-limits.ts"
import { MACHINE_LEASE, MachineFactsSchema, type StoredMachine } from "../apis/machine.ts"
import { Int, Text } from "../apis/schema.ts"
import { check } from "./messages.ts"

/**
 * Protocol of a host that its owner has joined, and the gateway. It has the form of the agents' protocol (protocol.ts).
 *
 * `POST {gateway}/agent/v1/machines/{namespace}/{name}/join|beat`. Each body is a compact JWS by the host's signing key. The
 * bearer token of `join` is the join token, and that of `beat` the machine token of the join's answer. A host that has a
 * job registers for its Launch as any agent does, with keys of their own.
 */

/** Request of a host to be this machine. A host that got no answer repeats it with the same keys. */
export const JoinRequestSchema = Type.Object({
  protocol: Int({ minimum: 1 }),
  version: Text(64, "Version of the agent."),
  /** Ed25519. The signature of the JWS proves that the host has the private half. */
  signingKey: Text(512, "JWK as JSON."),
  /** X25519, for ECDH-ES+A256KW. */
  encryptionKey: Text(512, "JWK as JSON."),
  facts: MachineFactsSchema,
})
export type JoinRequest = Static<typeof JoinRequestSchema>

export const JoinResponseSchema = Type.Object({
  /** Bearer token of the host's later messages. */
  machineToken: Text(256, "HMAC of the machine and its join number."),
  leaseSeconds: Int({ minimum: 1, maximum: MACHINE_LEASE.most }),
})
export type JoinResponse = Static<typeof JoinResponseSchema>

/** Heartbeat of a host. One that waits for a job, and can run it, lets the gateway hold the answer for NEXT_WAIT_SECONDS at most. */
export const BeatRequestSchema = Type.Object({
  /** Number that grows with each message over the life of the host's keys. A late message changes nothing. */
  sequence: Int({ minimum: 1 }),
  /** Launch whose run the host has, from its order until nothing of it is left. Absent: it waits for one. */
  running: Type.Optional(Text(253, "Name of the Launch.")),
  /** Last Launch of which nothing is left on the host. It is sent with each message until the next one has begun. */
  freed: Type.Optional(Text(253, "Name of the Launch.")),
  /** Reason why the host can run no job. */
  unfit: Type.Optional(Text(LIMITS.message, "Reason.")),
  /** Present in the first message after a start. */
  facts: Type.Optional(MachineFactsSchema),
  version: Type.Optional(Text(64, "Version of the agent, with the facts.")),
})
export type BeatRequest = Static<typeof BeatRequestSchema>

export const BeatResponseSchema = Type.Object({
  /**
   * Seconds of the lease, from the time at which the host has sent this message. The host ends its job before they are over,
   * unless a later answer extends them.
   */
  leaseSeconds: Int({ maximum: MACHINE_LEASE.most }),
  /** BootConfig of the Launch that has the machine now, as a compact JWE. The host sends `running` from now on. */
  next: Type.Optional(Type.String()),
  /** Launch whose run the host ends now. */
  stop: Type.Optional(Text(253, "Name of the Launch.")),
})
export type BeatResponse = Static<typeof BeatResponseSchema>

/** Time for which a join token is valid, seconds. */
export const JOIN_TOKEN_SECONDS = 3600

/** Claims of a join token. */
export const JoinClaimsSchema = Type.Object({
  namespace: Text(253, "Namespace of the machine."),
  name: Text(253, "Name of the machine."),
  uid: Text(64, "Uid of the machine."),
  /** `spec.joinNumber` when it was issued. A later token makes it invalid. */
  number: Int({ minimum: 1 }),
  /** Seconds since 1970. */
  expires: Int(),
})
export type JoinClaims = Static<typeof JoinClaimsSchema>

const JOIN_PREFIX = "bmj1"

/** Prefixes that separate these HMACs from any other use of the same key. */
const JOIN_DOMAIN = "berth.dev/machine-join/v1\0"
const MACHINE_DOMAIN = "berth.dev/machine/v1\0"

/** Returns a token with which one host joins as this machine, once. It is derived, so that nothing is stored. */
export function joinToken(key: Uint8Array, claims: JoinClaims): string {
  const text = Buffer.from(JSON.stringify(claims)).toString("base64url")
  return `${JOIN_PREFIX}.${text}.${hmac(key, JOIN_DOMAIN, text)}`
}

/** Returns the claims of a join token, without a check of its signature: the host needs to know its machine's name. @throws TypeError */
export function claimsIn(token: string): JoinClaims {
  const [prefix, text = "", signature, ...more] = token.split(".")
  if (prefix !== JOIN_PREFIX || signature === undefined || more.length > 0) throw new TypeError("not a join token")
  let value: unknown
  try {
    value = JSON.parse(Buffer.from(text, "base64url").toString())
  } catch {
    throw new TypeError("not a join token")
  }
  return check(JoinClaimsSchema, value, "the join token")
}

/** Returns the claims of a join token; undefined unless Berth has issued it. */
export function verifyJoinToken(key: Uint8Array, token: string): JoinClaims | undefined {
  const [, text = "", signature = ""] = token.split(".")
  if (!isEqual(hmac(key, JOIN_DOMAIN, text), signature)) return undefined
  try {
    return claimsIn(token)
  } catch {
    return undefined
  }
}

/** Returns the token of a host's messages, after its join. */
export function machineToken(key: Uint8Array, uid: string, joinNumber: number): string {
  return hmac(key, MACHINE_DOMAIN, `${uid} ${joinNumber}`)
}

/** Returns true if `token` is that of the host that has joined as this machine. Compares in constant time. */
export function verifyMachineToken(key: Uint8Array, { metadata, status }: StoredMachine, token: string): boolean {
  const { joinNumber } = status?.host ?? {}
  return joinNumber !== undefined && isEqual(machineToken(key, metadata.uid, joinNumber), token)
}

function hmac(key: Uint8Array, domain: string, text: string): string {
  return createHmac("sha256", key).update(domain).update(text).digest("base64url")
}

function isEqual(expected: string, given: string): boolean {
  const [a, b] = [Buffer.from(expected), Buffer.from(given)]
  return a.byteLength === b.byteLength && timingSafeEqual(a, b)
}
