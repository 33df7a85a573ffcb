import { randomBytes } from "node:crypto"
import type { KubeClient } from "../kube/client.ts"
import { KEY_BYTES, KEY_ID_PATTERN, type Keyring } from "../sealing/keys.ts"
import { ensureOwnSecret, type OwnSecret, readOwnSecret } from "./own-secret.ts"

/** `primary` is the id of the key that new secrets are sealed under, `key-<id>` each key, the retiring ones too. */
const PRIMARY = "primary"
const KEY_PREFIX = "key-"

const SEALING_KEYS: OwnSecret<Keyring> = {
  name: "berth-sealing-keys",
  type: "berth.dev/sealing-keys",
  make: () => {
    const id = randomBytes(4).toString("hex")
    return { [PRIMARY]: Buffer.from(id), [KEY_PREFIX + id]: randomBytes(KEY_BYTES) }
  },
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

/** The operator has not made the keys yet, or somebody has deleted them. */
export class SealingKeysMissing extends Error {
  override readonly name = "SealingKeysMissing"
}

/** The key-encryption keys of this installation, made on the first call of all. */
export function ensureSealingKeys(client: KubeClient, namespace: string): Promise<Keyring> {
  return ensureOwnSecret(client, namespace, SEALING_KEYS)
}

/** The key-encryption keys as they are now. @throws SealingKeysMissing, KubeError */
export async function readSealingKeys(client: Pick<KubeClient, "get">, namespace: string): Promise<Keyring> {
  const keyring = await readOwnSecret(client, namespace, SEALING_KEYS)
  if (keyring !== undefined) return keyring
  throw new SealingKeysMissing(
    `there is no Secret ${SEALING_KEYS.name} in namespace "${namespace}": the operator makes it at its first start`,
  )
}
