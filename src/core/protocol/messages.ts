import { createHmac, timingSafeEqual } from "node:crypto"
import {
  CompactEncrypt,
  CompactSign,
  type CryptoKey,
  compactDecrypt,
  compactVerify,
  exportJWK,
  generateKeyPair,
  importJWK,
  type JWK,
} from "jose"
import type { Static, TSchema } from "typebox"
import Value from "typebox/value"
import { VM_CLOUDS } from "../../clouds/definitions.ts"
import type { Launch } from "../apis/launch.ts"
import {
  ALGORITHMS,
  type BootConfig,
  BootConfigSchema,
  type BootFailureRequest,
  BootFailureRequestSchema,
  type Buckets,
  BucketsSchema,
  CONSOLE_MARK,
  CONSOLE_OK,
  HOST_JWS_TYPES,
  type HostMessageKind,
  JWS_TYPES,
  type MessageKind,
  type RunOrder,
  RunOrderSchema,
} from "./protocol.ts"

/** Private keys of one agent as JWKs, as on its disk. */
export interface AgentKeys {
  signing: JWK
  encryption: JWK
}

/** Generates two key pairs: Ed25519 to sign messages, X25519 to receive encrypted ones. */
export async function generateAgentKeys(): Promise<AgentKeys> {
  const options = { extractable: true }
  const signing = await generateKeyPair(ALGORITHMS.signature, { crv: "Ed25519", ...options })
  const encryption = await generateKeyPair(ALGORITHMS.keyManagement, { crv: "X25519", ...options })
  return { signing: await exportJWK(signing.privateKey), encryption: await exportJWK(encryption.privateKey) }
}

/** Returns the public half in the protocol's form. @throws TypeError if it is not a key of this curve */
export function publicKey(jwk: JWK, curve: "Ed25519" | "X25519"): string {
  if (jwk.kty === "OKP" && jwk.crv === curve && typeof jwk.x === "string" && /^[\w-]{43}$/.test(jwk.x)) {
    return JSON.stringify({ crv: curve, kty: "OKP", x: jwk.x })
  }
  throw new TypeError(`not a public ${curve} key (RFC 8037)`)
}

/** Parses a public key of a message. @throws TypeError unless it is one, in the protocol's only form */
export function parsePublicKey(text: string, curve: "Ed25519" | "X25519"): JWK {
  let jwk: unknown
  try {
    jwk = JSON.parse(text)
  } catch {
    throw new TypeError(`not a public ${curve} key: not JSON`)
  }
  if (typeof jwk !== "object" || jwk === null || publicKey(jwk, curve) !== text) {
    throw new TypeError(`not a public ${curve} key in the form of RFC 7638`)
  }
  return jwk
}

/** Kinds of all messages, of agents and of hosts. */
export type AnyMessageKind = MessageKind | HostMessageKind

const ALL_JWS_TYPES: Readonly<Record<AnyMessageKind, string>> = { ...JWS_TYPES, ...HOST_JWS_TYPES }

/** Signs a message. Returns the compact JWS of the request's body. */
export async function signMessage(kind: AnyMessageKind, message: object, signingKey: JWK): Promise<string> {
  const key = await importJWK(signingKey, ALGORITHMS.signature)
  return await new CompactSign(Buffer.from(JSON.stringify(message)))
    .setProtectedHeader({ alg: ALGORITHMS.signature, typ: ALL_JWS_TYPES[kind] })
    .sign(key)
}

/** Returns the claims of a message before any verification. @throws TypeError if it is not a JWS with JSON in it */
export function unverifiedMessage(jws: string): unknown {
  const [, payload, signature, ...more] = jws.split(".")
  if (payload === undefined || signature === undefined || more.length > 0) throw new TypeError("not a compact JWS")
  try {
    return JSON.parse(Buffer.from(payload, "base64url").toString())
  } catch {
    throw new TypeError("the payload of the JWS is not JSON")
  }
}

/** Characters of an Ed25519 signature in base64url. */
const SIGNATURE_CHARACTERS = 86

/** Rejects texts that can't be a message of this kind, without any cryptography. @throws TypeError */
export function checkShape(kind: AnyMessageKind, jws: string): void {
  const [protectedHeader = "", , signature, ...more] = jws.split(".")
  if (signature?.length !== SIGNATURE_CHARACTERS || more.length > 0) throw new TypeError("not a compact JWS (EdDSA)")
  const { alg, typ } = headerOf(protectedHeader)
  if (alg !== ALGORITHMS.signature) throw new TypeError(`the JWS must be signed with ${ALGORITHMS.signature}`)
  if (typ !== ALL_JWS_TYPES[kind]) {
    throw new TypeError(`the JWS is of another kind; its typ must be ${ALL_JWS_TYPES[kind]}`)
  }
}

function headerOf(text: string): { alg?: unknown; typ?: unknown } {
  try {
    const header: unknown = JSON.parse(Buffer.from(text, "base64url").toString())
    return typeof header === "object" && header !== null ? header : {}
  } catch {
    throw new TypeError("the header of the JWS is not JSON")
  }
}

/**
 * Verifies a message's kind and signature, and returns the message.
 * @throws jose's JOSEError if the signature is wrong; TypeError if the algorithm or the kind is
 */
export async function verifyMessage(kind: AnyMessageKind, jws: string, signingKey: string): Promise<unknown> {
  checkShape(kind, jws)
  const key = await importJWK(parsePublicKey(signingKey, "Ed25519"), ALGORITHMS.signature)
  const { payload } = await compactVerify(jws, key, { algorithms: [ALGORITHMS.signature] })
  try {
    return JSON.parse(Buffer.from(payload).toString())
  } catch {
    throw new TypeError("the payload of the JWS is not JSON")
  }
}

/** Encrypts a secret as a compact JWE that only the agent with this encryption key can read. */
async function seal(secret: object, encryptionKey: string): Promise<string> {
  const { keyManagement: alg, encryption: enc } = ALGORITHMS
  const key = (await importJWK(parsePublicKey(encryptionKey, "X25519"), alg)) as CryptoKey
  return await new CompactEncrypt(Buffer.from(JSON.stringify(secret))).setProtectedHeader({ alg, enc }).encrypt(key)
}

/**
 * Checks that a key is an X25519 key to which a text can be encrypted (RFC 7748, section 6.1). Rejects with TypeError.
 */
export async function checkEncryptionKey(text: string): Promise<void> {
  parsePublicKey(text, "X25519")
  try {
    await seal({}, text)
  } catch (cause) {
    throw new TypeError("not a public X25519 key: nothing can be encrypted to this point", { cause })
  }
}

async function open<T extends TSchema>(
  jwe: string,
  encryptionKey: JWK,
  of: { schema: T; what: string },
): Promise<Static<T>> {
  const { keyManagement, encryption } = ALGORITHMS
  const key = await importJWK(encryptionKey, keyManagement)
  const { plaintext } = await compactDecrypt(jwe, key, {
    keyManagementAlgorithms: [keyManagement],
    contentEncryptionAlgorithms: [encryption],
  })
  return check(of.schema, JSON.parse(Buffer.from(plaintext).toString()), of.what)
}

/** Encrypts the order as a compact JWE that only the agent with this encryption key can read. */
export function sealOrder(order: RunOrder, encryptionKey: string): Promise<string> {
  return seal(order, encryptionKey)
}

/** Opens an order. @throws jose's JOSEError if it is for another key; TypeError if it is not a RunOrder */
export function openOrder(jwe: string, encryptionKey: JWK): Promise<RunOrder> {
  return open(jwe, encryptionKey, { schema: RunOrderSchema, what: "the order" })
}

/** Seals the access to a run's buckets, in the same way as an order. */
export function sealBuckets(buckets: Buckets, encryptionKey: string): Promise<string> {
  return seal(buckets, encryptionKey)
}

/** Opens the access to buckets. @throws as `openOrder` */
export function openBuckets(jwe: string, encryptionKey: JWK): Promise<Buckets> {
  return open(jwe, encryptionKey, { schema: BucketsSchema, what: "the access to buckets" })
}

/** Seals the boot config of the Launch that takes over a VM, in the same way as an order. */
export function sealBootConfig(config: BootConfig, encryptionKey: string): Promise<string> {
  return seal(config, encryptionKey)
}

/** Opens a boot config. @throws as `openOrder` */
export function openBootConfig(jwe: string, encryptionKey: JWK): Promise<BootConfig> {
  return open(jwe, encryptionKey, { schema: BootConfigSchema, what: "the next boot config" })
}

/** Prefix that separates these HMACs from any other use of the same key. */
const DOMAIN = "berth.dev/agent-bootstrap/v1\0"

/** Minimum length of the bootstrap key, bytes: the length of the hash's output (RFC 2104). */
const LEAST_KEY_BYTES = 32

/**
 * Returns the secret with which the VM of one Launch registers its key pair: HMAC-SHA-256 of the Launch's name,
 * base64url. It is derived, so that nothing is stored, and a repeated launch has the same bytes. @throws RangeError for
 * a key of less than 32 bytes
 */
export function bootstrapToken(key: Uint8Array, launch: string): string {
  if (key.byteLength < LEAST_KEY_BYTES) {
    throw new RangeError(`the bootstrap key has ${key.byteLength} bytes; give at least ${LEAST_KEY_BYTES} random ones`)
  }
  return createHmac("sha256", key).update(DOMAIN).update(launch).digest("base64url")
}

/** Returns true if `token` is the Launch's. Compares in constant time. */
export function verifyBootstrapToken(key: Uint8Array, launch: string, token: string): boolean {
  const expected = Buffer.from(bootstrapToken(key, launch))
  const given = Buffer.from(token)
  return given.byteLength === expected.byteLength && timingSafeEqual(given, expected)
}

/** Returns the boot config of this Launch's VM. Pure: it depends only on the frozen spec, so every replay is equal. */
export function bootConfig(launch: Pick<Launch, "metadata" | "spec">, key: Uint8Array): BootConfig {
  const { gatewayUrl, gatewayCa, lifetimeSeconds, budgetSeconds, volumesImage, offer } = launch.spec
  const spotCloud = offer.provisioning === "spot" ? VM_CLOUDS.find((cloud) => cloud === offer.cloud) : undefined
  return {
    launch: launch.metadata.name,
    gatewayUrl,
    ...(gatewayCa !== undefined && { gatewayCa }),
    bootstrapToken: bootstrapToken(key, launch.metadata.name),
    lifetimeSeconds,
    ...(budgetSeconds !== undefined && { budgetSeconds }),
    ...(volumesImage !== undefined && { volumesImage }),
    ...(spotCloud !== undefined && { spotCloud }),
  }
}

/** Renders the config as user data. The order of the fields is fixed, so equal configs give equal bytes. */
export function renderUserData(config: BootConfig): string {
  const { launch, gatewayUrl, gatewayCa, bootstrapToken, lifetimeSeconds, budgetSeconds, volumesImage, spotCloud } =
    config
  const ordered = {
    launch,
    gatewayUrl,
    gatewayCa,
    bootstrapToken,
    lifetimeSeconds,
    budgetSeconds,
    volumesImage,
    spotCloud,
  }
  return `${JSON.stringify(ordered, undefined, 2)}\n`
}

/** Parses user data. @throws TypeError with the field's name if it is not a result of `renderUserData` */
export function parseUserData(userData: string): BootConfig {
  let value: unknown
  try {
    value = JSON.parse(userData)
  } catch {
    // The parser's own message quotes its input, which has the token.
    throw new TypeError("user data is not JSON")
  }
  return check(BootConfigSchema, value, "user data")
}

/** Line of a VM on its console. The VM's own characters are the only ones that count as a message. */
const CONSOLE_LINE = new RegExp(
  `${CONSOLE_MARK} (?:(?<failure>\\{"reason":"\\w+","message":"[A-Za-z0-9 .,:;()/_-]{1,700}"\\})|${CONSOLE_OK})`,
  "g",
)

/**
 * Returns the failure that a VM wrote on its console, by its last line there. Other lines, such as those of the kernel,
 * may hold anything and are ignored.
 */
export function failureOnConsole(text: string): BootFailureRequest | undefined {
  const last = [...text.matchAll(CONSOLE_LINE)].at(-1)?.groups?.["failure"]
  const value: unknown = last === undefined ? undefined : JSON.parse(last)
  return Value.Check(BootFailureRequestSchema, value) ? value : undefined
}

/** Maximum number of errors that one message names. */
const ERRORS_NAMED = 5

/**
 * Returns the value if it matches the schema.
 * @throws TypeError with the JSON pointers of the invalid fields, without their values, which may be secrets
 */
export function check<T extends TSchema>(schema: T, value: unknown, what: string): Static<T> {
  if (Value.Check(schema, value)) return value
  const errors = Value.Errors(schema, value).map(
    ({ instancePath, message }) => `${instancePath === "" ? "it" : instancePath} ${message}`,
  )
  throw new TypeError(`${what} is invalid: ${errors.slice(0, ERRORS_NAMED).join("; ")}`)
}
