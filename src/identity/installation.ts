import { randomBytes, randomUUID } from "node:crypto"
import type { ObjectMeta } from "../apis/meta.ts"
import type { KubeClient } from "../kube/client.ts"
import { isAlreadyExists, isNotFound } from "../kube/errors.ts"
import { resourceOf } from "../kube/resource.ts"

/** What tells this Berth from every other one, and lets its VMs in. */
export interface Installation {
  /** Every VM carries it as a tag: the sweep ends only VMs of its own installation. */
  id: string
  /** Bootstrap tokens of VMs are HMACs by this key. */
  bootstrapKey: Uint8Array
}

interface Secret {
  metadata: ObjectMeta
  type?: string
  data?: Record<string, string>
}

export const SECRETS = resourceOf<Secret>({
  group: "",
  version: "v1",
  kind: "Secret",
  plural: "secrets",
  namespaced: true,
})

const SECRET_NAME = "berth-installation"

/**
 * Reads the installation, made on the first call of all. The operator makes it, never a chart: a chart that is
 * rendered without the cluster (Argo CD) would make another one with each sync, and all VMs would be strangers.
 */
export async function ensureInstallation(client: KubeClient, namespace: string): Promise<Installation> {
  const found = await readInstallation(client, namespace)
  if (found !== undefined) return found
  const data = {
    id: Buffer.from(randomUUID()).toString("base64"),
    bootstrapKey: randomBytes(32).toString("base64"),
  }
  try {
    const secret: Secret = { metadata: { name: SECRET_NAME, namespace }, type: "berth.dev/installation", data }
    return parse(await client.create(SECRETS, secret))
  } catch (error) {
    if (!isAlreadyExists(error)) throw error
    return parse(await client.get(SECRETS, { namespace, name: SECRET_NAME }))
  }
}

/** The installation, or undefined while no operator has made it yet. */
export async function readInstallation(client: KubeClient, namespace: string): Promise<Installation | undefined> {
  try {
    return parse(await client.get(SECRETS, { namespace, name: SECRET_NAME }))
  } catch (error) {
    if (isNotFound(error)) return undefined
    throw error
  }
}

function parse(secret: Secret): Installation {
  const id = Buffer.from(secret.data?.["id"] ?? "", "base64").toString()
  const bootstrapKey = Buffer.from(secret.data?.["bootstrapKey"] ?? "", "base64")
  if (/^[0-9a-f-]{36}$/.test(id) && bootstrapKey.length === 32) return { id, bootstrapKey }
  throw new Error(
    `Secret ${secret.metadata.namespace}/${SECRET_NAME} is damaged: it needs "id" (a UUID) and "bootstrapKey" (32 bytes). ` +
      "Restore it from a backup; VMs that run now are known by it.",
  )
}
