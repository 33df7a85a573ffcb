import { randomBytes, randomUUID } from "node:crypto"
import type { KubeClient } from "../kube/client.ts"
import { ensureOwnSecret, type OwnSecret, readOwnSecret } from "./own-secret.ts"

/** What tells this Berth from every other one, and lets its VMs in. */
export interface Installation {
  /** Every VM carries it as a tag: garbage collection terminates only VMs of its own installation. */
  id: string
  /** Bootstrap tokens of VMs are HMACs by this key. */
  bootstrapKey: Uint8Array
}

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
        "Restore it from a backup; VMs that run now are known by it.",
    )
  },
}

/** Reads the installation, made on the first call of all: made anew, all VMs would be strangers. */
export function ensureInstallation(client: KubeClient, namespace: string): Promise<Installation> {
  return ensureOwnSecret(client, namespace, INSTALLATION)
}

/** The installation, or undefined while no operator has made it yet. */
export function readInstallation(client: KubeClient, namespace: string): Promise<Installation | undefined> {
  return readOwnSecret(client, namespace, INSTALLATION)
}
