import type { ObjectMeta } from "../apis/meta.ts"
import type { KubeClient } from "../kube/client.ts"
import { SECRETS, type Secret } from "../kube/core.ts"
import { ifFound, isAlreadyExists } from "../kube/errors.ts"

/** Secret of the installation itself, which the operator creates once. */
export interface OwnSecret<Content> {
  name: string
  type: string
  /** Returns new content, of random bytes. */
  make: () => Record<string, Uint8Array>
  /** @throws Error if the Secret is damaged */
  parse: (data: ReadonlyMap<string, Buffer>, where: string) => Content
}

/**
 * Returns the Secret's content, and creates it on the first call. Only the operator creates it. A chart that is
 * rendered without the cluster (Argo CD) would create another one at each sync.
 */
export async function ensureOwnSecret<C>(client: KubeClient, namespace: string, own: OwnSecret<C>): Promise<C> {
  const found = await readOwnSecret(client, namespace, own)
  if (found !== undefined) return found
  const { name, type } = own
  const data = Object.fromEntries(
    Object.entries(own.make()).map(([key, value]) => [key, Buffer.from(value).toString("base64")]),
  )
  try {
    return parseSecret(await client.create(SECRETS, { metadata: { name, namespace }, type, data }), own)
  } catch (error) {
    if (!isAlreadyExists(error)) throw error
    return parseSecret(await client.get(SECRETS, { namespace, name }), own)
  }
}

/** Returns the Secret's content, or undefined if the operator has not created it yet. */
export async function readOwnSecret<C>(
  client: Pick<KubeClient, "get">,
  namespace: string,
  own: OwnSecret<C>,
): Promise<C | undefined> {
  return (await readStoredSecret(client, namespace, own))?.content
}

/**
 * Returns the Secret's content, and its metadata for a change of it. Returns undefined if the operator has not created
 * it yet.
 */
export async function readStoredSecret<C>(
  client: Pick<KubeClient, "get">,
  namespace: string,
  own: OwnSecret<C>,
): Promise<{ metadata: ObjectMeta; content: C } | undefined> {
  const secret = await ifFound(client.get(SECRETS, { namespace, name: own.name }))
  return secret && { metadata: secret.metadata, content: parseSecret(secret, own) }
}

function parseSecret<C>({ metadata, data = {} }: Secret, own: OwnSecret<C>): C {
  const decoded = new Map(Object.entries(data).map(([key, value]) => [key, Buffer.from(value, "base64")]))
  return own.parse(decoded, `Secret ${metadata.namespace}/${own.name}`)
}
