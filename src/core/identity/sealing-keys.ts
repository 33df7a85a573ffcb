import { randomBytes } from "node:crypto"
import type { ObjectMeta } from "../apis/meta.ts"
import type { KubeClient } from "../kube/client.ts"
import { SECRETS, type Secret } from "../kube/core.ts"
import type { ReflectorOptions } from "../kube/reflector.ts"
import { Sealer } from "../sealing/envelope.ts"
import { KEY_BYTES, KEY_ID_PATTERN, type Keyring, KeyringEncryption } from "../sealing/keys.ts"
import { ensureOwnSecret, type OwnSecret, readOwnSecret, readStoredSecret } from "./own-secret.ts"

/** Field manager of changes of the keys. */
const FIELD_MANAGER = "berth-sealing-keys"

/**
 * Entries of the Secret. `primary` has the id of the key that seals new secrets. `key-<id>` has each key, also retiring
 * ones.
 */
const PRIMARY = "primary"
const KEY_PREFIX = "key-"

const SEALING_KEYS: OwnSecret<Keyring> = {
  name: "berth-sealing-keys",
  type: "berth.dev/sealing-keys",
  make: newPrimaryKey,
  parse: (data, where) => {
    const primary = data.get(PRIMARY)?.toString() ?? ""
    const found = [...data].filter(([entry]) => entry.startsWith(KEY_PREFIX))
    const keys = new Map(found.map(([entry, key]) => [entry.slice(KEY_PREFIX.length), key]))
    const isSound = [...keys].every(([id, key]) => KEY_ID_PATTERN.test(id) && key.length === KEY_BYTES)
    if (isSound && keys.has(primary)) return { primary, keys }
    throw new Error(
      `${where} is damaged: it needs "${PRIMARY}" (a key's id) and a "${KEY_PREFIX}<id>" of ${KEY_BYTES} bytes for each key. ` +
        "Restore it from a backup: connections can't be read without it.",
    )
  },
}

/** Returns the entries of a new primary key. */
function newPrimaryKey(): Record<string, Uint8Array> {
  const id = randomBytes(4).toString("hex")
  return { [PRIMARY]: Buffer.from(id), [KEY_PREFIX + id]: randomBytes(KEY_BYTES) }
}

/** Options of a reflector of this one Secret in the system namespace. */
export const SEALING_KEYS_CACHE: Pick<ReflectorOptions<Secret>, "resource" | "fieldSelector"> = {
  resource: SECRETS,
  fieldSelector: `metadata.name=${SEALING_KEYS.name}`,
}

/** The operator has not created the keys yet, or someone has deleted them. */
export class SealingKeysMissing extends Error {
  override readonly name = "SealingKeysMissing"
}

/** Returns the key-encryption keys of this installation, and creates them on the first call. */
export function ensureSealingKeys(client: KubeClient, namespace: string): Promise<Keyring> {
  return ensureOwnSecret(client, namespace, SEALING_KEYS)
}

/** Returns the current key-encryption keys. @throws SealingKeysMissing, KubeError */
export async function readSealingKeys(client: Pick<KubeClient, "get">, namespace: string): Promise<Keyring> {
  const keyring = await readOwnSecret(client, namespace, SEALING_KEYS)
  if (keyring !== undefined) return keyring
  throw missing(namespace)
}

/** Returns a sealer that reads the keys for each use, because another process may have rotated them. */
export function storedKeysSealer(client: Pick<KubeClient, "get">, namespace: string): Sealer {
  return new Sealer(new KeyringEncryption(() => readSealingKeys(client, namespace)))
}

/**
 * Creates a new primary key. Secrets that were sealed before stay readable under their old keys.
 * @returns the ids of the primary key before and now
 * @throws SealingKeysMissing
 * @throws KubeError, a Conflict if someone else changed the keys in the meantime
 */
export async function rotateSealingKey(
  client: Pick<KubeClient, "get" | "patch">,
  namespace: string,
): Promise<{ before: string; now: string }> {
  const { metadata, keyring } = await readStored(client, namespace)
  const entries = Object.entries(newPrimaryKey()).map(([entry, value]) => [entry, Buffer.from(value)] as const)
  const data = Object.fromEntries(entries.map(([entry, value]) => [entry, value.toString("base64")]))
  await patchKeys(client, metadata, data)
  return { before: keyring.primary, now: entries.find(([entry]) => entry === PRIMARY)?.[1].toString() ?? "" }
}

/**
 * Deletes keys. Secrets that are sealed under a deleted key become unreadable. The primary key always stays.
 * @throws SealingKeysMissing
 * @throws KubeError, a Conflict if someone else changed the keys in the meantime
 */
export async function deleteSealingKeys(
  client: Pick<KubeClient, "get" | "patch">,
  namespace: string,
  ids: readonly string[],
): Promise<void> {
  const { metadata, keyring } = await readStored(client, namespace)
  const gone = ids.filter((id) => id !== keyring.primary && keyring.keys.has(id))
  if (gone.length === 0) return
  await patchKeys(client, metadata, Object.fromEntries(gone.map((id) => [KEY_PREFIX + id, null])))
}

async function readStored(
  client: Pick<KubeClient, "get">,
  namespace: string,
): Promise<{ metadata: ObjectMeta; keyring: Keyring }> {
  const found = await readStoredSecret(client, namespace, SEALING_KEYS)
  if (found === undefined) throw missing(namespace)
  return { metadata: found.metadata, keyring: found.content }
}

/** Writes on the version that was read, so that a key that someone else has just created is not lost. */
async function patchKeys(
  client: Pick<KubeClient, "patch">,
  { namespace, name, resourceVersion }: ObjectMeta,
  data: Record<string, string | null>,
): Promise<void> {
  const merge = { metadata: { resourceVersion }, data }
  await client.patch(SECRETS, { namespace, name }, { merge }, { fieldManager: FIELD_MANAGER })
}

function missing(namespace: string): SealingKeysMissing {
  return new SealingKeysMissing(
    `there is no Secret ${SEALING_KEYS.name} in namespace "${namespace}": the operator creates it at its first start`,
  )
}
