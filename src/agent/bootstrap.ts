import { createHmac, timingSafeEqual } from "node:crypto"
import type { Launch } from "../apis/launch.ts"
import { check } from "./check.ts"
import { type BootConfig, BootConfigSchema, SPOT_CLOUDS } from "./protocol.ts"

/** Keeps these HMACs apart from whatever else the same key may ever be used for. */
const DOMAIN = "berth.dev/agent-bootstrap/v1\0"

/** Fewer bytes than this make the token guessable (RFC 2104: no less than the hash's output). */
const LEAST_KEY_BYTES = 32

/**
 * The secret that lets the VM of one Launch register its key pair: HMAC-SHA-256 of the Launch's name, base64url.
 * Derived, so that nothing is stored and a replayed launch carries the same bytes. Throws RangeError for a key
 * of less than 32 bytes.
 */
export function bootstrapToken(key: Uint8Array, launch: string): string {
  if (key.byteLength < LEAST_KEY_BYTES) {
    throw new RangeError(`the bootstrap key has ${key.byteLength} bytes; give at least ${LEAST_KEY_BYTES} random ones`)
  }
  return createHmac("sha256", key).update(DOMAIN).update(launch).digest("base64url")
}

/** Whether `token` is the Launch's, compared in constant time. */
export function verifyBootstrapToken(key: Uint8Array, launch: string, token: string): boolean {
  const expected = Buffer.from(bootstrapToken(key, launch))
  const given = Buffer.from(token)
  return given.byteLength === expected.byteLength && timingSafeEqual(given, expected)
}

/** What the VM of this Launch starts with: a pure function of the frozen spec, the same at every replay. */
export function bootConfig(launch: Pick<Launch, "metadata" | "spec">, key: Uint8Array): BootConfig {
  const { gatewayUrl, gatewayCa, lifetimeSeconds, offer } = launch.spec
  const spotCloud = offer.provisioning === "spot" ? SPOT_CLOUDS.find((cloud) => cloud === offer.cloud) : undefined
  return {
    launch: launch.metadata.name,
    gatewayUrl,
    ...(gatewayCa !== undefined && { gatewayCa }),
    bootstrapToken: bootstrapToken(key, launch.metadata.name),
    lifetimeSeconds,
    ...(spotCloud !== undefined && { spotCloud }),
  }
}

/** The config as a VM's user data. Fields in a fixed order: equal configs make equal bytes. */
export function renderUserData(config: BootConfig): string {
  const { launch, gatewayUrl, gatewayCa, bootstrapToken, lifetimeSeconds, image, spotCloud } = config
  const ordered = { launch, gatewayUrl, gatewayCa, bootstrapToken, lifetimeSeconds, image, spotCloud }
  return `${JSON.stringify(ordered, undefined, 2)}\n`
}

/** Reads user data back. Throws TypeError, naming the field, when it is not what `renderUserData` makes. */
export function parseUserData(userData: string): BootConfig {
  let value: unknown
  try {
    value = JSON.parse(userData)
  } catch {
    // The parser's own message quotes its input, which holds the token.
    throw new TypeError("user data is not JSON")
  }
  return check(BootConfigSchema, value, "user data")
}
