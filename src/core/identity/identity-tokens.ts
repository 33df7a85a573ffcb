import { createPublicKey, generateKeyPairSync, randomBytes, randomUUID } from "node:crypto"
import { exportJWK, importPKCS8, type JWK, SignJWT } from "jose"
import type { Clock } from "../apis/clock.ts"
import type { KubeClient } from "../kube/client.ts"
import { keptFor } from "./kept.ts"
import { ensureOwnSecret, type OwnSecret, readOwnSecret } from "./own-secret.ts"

/** The only algorithm that AWS, Google Cloud and Microsoft Entra all accept for identity tokens. */
const ALGORITHM = "RS256"
const KEY_BITS = 2048
const TOKEN_SECONDS = 600

/** The keys are read again after this time, seconds: a key may have been added. */
const KEYS_SECONDS = 60

const PRIMARY = "primary"
const KEY_PREFIX = "key-"

/** Keys that sign identity tokens, as PKCS #8 in PEM. */
export interface IdentityKeys {
  /** Id of the key that signs. */
  primary: string
  keys: ReadonlyMap<string, string>
}

const IDENTITY_KEYS: OwnSecret<IdentityKeys> = {
  name: "berth-identity-keys",
  type: "berth.dev/identity-keys",
  make: () => {
    const id = randomBytes(8).toString("hex")
    const { privateKey } = generateKeyPairSync("rsa", { modulusLength: KEY_BITS })
    return {
      [PRIMARY]: Buffer.from(id),
      [KEY_PREFIX + id]: Buffer.from(privateKey.export({ type: "pkcs8", format: "pem" })),
    }
  },
  parse: (data, where) => {
    const primary = data.get(PRIMARY)?.toString() ?? ""
    const found = [...data].filter(([entry]) => entry.startsWith(KEY_PREFIX))
    const keys = new Map(found.map(([entry, key]) => [entry.slice(KEY_PREFIX.length), key.toString()]))
    if (keys.get(primary)?.startsWith("-----BEGIN PRIVATE KEY-----")) return { primary, keys }
    const form = `"${PRIMARY}" (a key's id) and a "${KEY_PREFIX}<id>" (PKCS #8 in PEM) for each key`
    throw new Error(
      `${where} is damaged: it needs ${form}. Delete it: the operator creates new keys at its next start.`,
    )
  },
}

/** Creates the keys on the first call. Only the operator calls it. */
export async function ensureIdentityKeys(client: KubeClient, namespace: string): Promise<void> {
  await ensureOwnSecret(client, namespace, IDENTITY_KEYS)
}

export interface IssuerOptions {
  client: Pick<KubeClient, "get">
  systemNamespace: string
  /** URL of the issuer, without a slash at its end. */
  issuer: string
  clock: Clock
}

/** Issuer of identity tokens, and the documents by which clouds verify them (OpenID Connect Discovery 1.0). */
export class IdentityIssuer {
  readonly issuer: string
  readonly #options: IssuerOptions
  readonly #keys: () => Promise<IdentityKeys>

  constructor(options: IssuerOptions) {
    this.#options = options
    this.issuer = options.issuer
    this.#keys = keptFor(KEYS_SECONDS, options.clock, () => readKeys(options))
  }

  /** Returns a signed JWT, valid for ten minutes. @throws Error if the operator has not created the keys yet */
  async token(subject: string, audience: string): Promise<string> {
    const { primary, keys } = await this.#keys()
    const now = Math.floor(this.#options.clock.now().getTime() / 1000)
    return await new SignJWT()
      .setProtectedHeader({ alg: ALGORITHM, kid: primary, typ: "JWT" })
      .setIssuer(this.issuer)
      .setSubject(subject)
      .setAudience(audience)
      .setIssuedAt(now)
      .setExpirationTime(now + TOKEN_SECONDS)
      .setJti(randomUUID())
      .sign(await importPKCS8(keys.get(primary) ?? "", ALGORITHM))
  }

  /** Returns the content of `/.well-known/openid-configuration`. */
  configuration(): object {
    return {
      issuer: this.issuer,
      jwks_uri: `${this.issuer}/.well-known/jwks.json`,
      response_types_supported: ["id_token"],
      subject_types_supported: ["public"],
      id_token_signing_alg_values_supported: [ALGORITHM],
    }
  }

  /** Returns the public keys: the content of `/.well-known/jwks.json`. */
  async jwks(): Promise<{ keys: JWK[] }> {
    const { keys } = await this.#keys()
    return { keys: await Promise.all([...keys].map(([kid, key]) => publicKeyOf(kid, key))) }
  }
}

async function readKeys({ client, systemNamespace }: IssuerOptions): Promise<IdentityKeys> {
  const found = await readOwnSecret(client, systemNamespace, IDENTITY_KEYS)
  if (found !== undefined) return found
  throw new Error(`there is no Secret ${IDENTITY_KEYS.name} yet: the operator creates it at its start`)
}

async function publicKeyOf(kid: string, privateKey: string): Promise<JWK> {
  return { ...(await exportJWK(createPublicKey(privateKey))), kid, alg: ALGORITHM, use: "sig" }
}
