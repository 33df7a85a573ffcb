import { randomBytes, randomUUID } from "node:crypto"
import { JOB_CLOUDS } from "../../clouds/definitions.ts"
import type { KubeClient } from "../kube/client.ts"
import { ensureOwnSecret, type OwnSecret, readOwnSecret } from "./own-secret.ts"

/** Identity of this installation of Berth, and the key that authenticates its VMs. */
export interface Installation {
  /** Tag of every VM. Garbage collection terminates only VMs of its own installation. */
  id: string
  /** HMAC key of the VMs' bootstrap tokens. */
  bootstrapKey: Uint8Array
}

/** Name of the Lease in the system namespace that elects the operators' leader. */
export const OPERATOR_LEASE = "berth-operator"

/**
 * Abilities of this version's operator, which its Lease shows while it leads. ABILITIES_POLICY rejects what an older operator
 * would misread. `after`: it starts a job or an array after its prerequisites. `reuse`: it lets another job have a VM. `group`:
 * it lets no more jobs of a concurrency group run than its limit. `readOnly`: its VMs' agents mount such a volume read-only. The
 * others are the clouds that it knows.
 */
export const OPERATOR_ABILITIES: readonly string[] = ["after", "reuse", "group", "readOnly", ...JOB_CLOUDS]

/** Admission policy that rejects fields for which the leader lacks the ability (manifests/base/abilities.yaml). */
export const ABILITIES_POLICY = "berth-abilities"

const INSTALLATION: OwnSecret<Installation> = {
  name: "berth-installation",
  type: "berth.dev/installation",
  make: () => ({ id: Buffer.from(randomUUID()), bootstrapKey: randomBytes(32) }),
  parse: (data, where) => {
    const id = data.get("id")?.toString() ?? ""
    const bootstrapKey = data.get("bootstrapKey")
    if (/^[0-9a-f-]{36}$/.test(id) && bootstrapKey?.length === 32) return { id, bootstrapKey }
    throw new Error(
      `${where} is damaged: it needs "id" (a UUID) and "bootstrapKey" (32 bytes). ` +
        "Restore it from a backup: Berth recognizes its running VMs by it.",
    )
  },
}

/**
 * Returns the installation, and creates it on the first call. It must never be regenerated: running VMs are found by
 * its id.
 */
export function ensureInstallation(client: KubeClient, namespace: string): Promise<Installation> {
  return ensureOwnSecret(client, namespace, INSTALLATION)
}

/** Returns the installation, or undefined if the operator has not created it yet. */
export function readInstallation(client: KubeClient, namespace: string): Promise<Installation | undefined> {
  return readOwnSecret(client, namespace, INSTALLATION)
}
