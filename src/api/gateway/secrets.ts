import { isMetadataName } from "../../core/apis/names.ts"
import { ENV_SECRET_TYPE, type SecretRefs, secretKeys, whySecretMissing } from "../../core/apis/secret-env.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { SECRETS } from "../../core/kube/core.ts"
import { ifFound } from "../../core/kube/errors.ts"

/** Resolves secretEnv in a Job's namespace. Rejects with SecretMissingError if there is no such value. */
export type SecretEnv = (namespace: string, refs: SecretRefs) => Promise<Record<string, string>>

/** A secret that a run needs is missing or invalid. The message names it and the reason, and never a value. */
export class SecretMissingError extends Error {
  override readonly name = "SecretMissingError"
}

/** Resolves secretEnv from Kubernetes Secrets. It reads them live each time, because they may have been rotated. */
export function kubeSecretEnv(client: Pick<KubeClient, "get">): SecretEnv {
  return async (namespace, refs) => {
    const data = await readSecrets(client, namespace, refs)
    const why = whyMissingIn(data, refs)
    if (why !== undefined) throw new SecretMissingError(why)
    const decoded = ({ secret, key }: SecretRefs[string]) =>
      Buffer.from(data.get(secret)?.[key] ?? "", "base64").toString()
    return Object.fromEntries(Object.entries(refs).map(([variable, ref]) => [variable, decoded(ref)]))
  }
}

/** Returns a reader of why a run's secretEnv can't be resolved now, for plans; undefined: it can. */
export function secretChecker(client: Pick<KubeClient, "get">) {
  return async (namespace: string, refs: SecretRefs): Promise<string | undefined> =>
    whyMissingIn(await readSecrets(client, namespace, refs), refs)
}

type SecretData = ReadonlyMap<string, Readonly<Record<string, string>>>

/** Returns the data of the Secrets of type `berth.dev/env` by their names, in base64. */
async function readSecrets(client: Pick<KubeClient, "get">, namespace: string, refs: SecretRefs): Promise<SecretData> {
  const names = [...new Set(Object.values(refs).map(({ secret }) => secret))].filter(isMetadataName)
  const found = await Promise.all(names.map((name) => ifFound(client.get(SECRETS, { namespace, name }))))
  const usable = found.flatMap((secret) => (secret?.type === ENV_SECRET_TYPE ? [secret] : []))
  return new Map(usable.map(({ metadata, data = {} }) => [metadata.name, data]))
}

function whyMissingIn(data: SecretData, refs: SecretRefs): string | undefined {
  const keys = new Map([...data].map(([name, values]) => [name, secretKeys(values)]))
  return whySecretMissing(refs, (name) => keys.get(name))
}
