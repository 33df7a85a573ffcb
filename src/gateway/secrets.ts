import type { Run } from "../apis/job.ts"
import { LIMITS } from "../apis/limits.ts"
import { isMetadataName } from "../apis/names.ts"
import type { KubeClient } from "../kube/client.ts"
import { SECRETS, type Secret } from "../kube/core.ts"
import { ifFound } from "../kube/errors.ts"

/** References to the values of a run's secretEnv, by variable. */
export type SecretRefs = NonNullable<Run["secretEnv"]>

/** Resolves secretEnv in a Job's namespace. Rejects with SecretMissingError if there is no such value. */
export type SecretEnv = (namespace: string, refs: SecretRefs) => Promise<Record<string, string>>

/** A secret that a run needs is missing or invalid. The message names it and the reason, and never a value. */
export class SecretMissingError extends Error {
  override readonly name = "SecretMissingError"
}

/** Type of the Secrets that a Job may read. A Job can't read any other Secret in its namespace. */
export const ENV_SECRET_TYPE = "berth.dev/env"

/** Resolves secretEnv from Kubernetes Secrets. It reads them live each time, because they may have been rotated. */
export function kubeSecretEnv(client: KubeClient): SecretEnv {
  return async (namespace, refs) => {
    const names = [...new Set(Object.values(refs).map((ref) => ref.secret))]
    const secrets = new Map(
      await Promise.all(names.map(async (name) => [name, await read(client, namespace, name)] as const)),
    )
    return Object.fromEntries(
      Object.entries(refs).map(([variable, ref]) => [variable, resolve(variable, ref, secrets.get(ref.secret))]),
    )
  }
}

async function read(client: KubeClient, namespace: string, name: string): Promise<Secret | undefined> {
  // Jobs of former versions may have names here that Kubernetes does not allow.
  return isMetadataName(name) ? ifFound(client.get(SECRETS, { namespace, name })) : undefined
}

function resolve(variable: string, ref: SecretRefs[string], secret: Secret | undefined): string {
  const where = `secretEnv ${variable}: Secret ${ref.secret}`
  if (!isMetadataName(ref.secret)) {
    throw new SecretMissingError(
      `${where} can't exist: Kubernetes allows no such name; create a job that names another`,
    )
  }
  // A Secret of another type is treated as missing: the Job must not learn that it exists.
  if (secret === undefined || secret.type !== ENV_SECRET_TYPE) {
    throw new SecretMissingError(`${where} of type ${ENV_SECRET_TYPE} is not in the job's namespace; create it`)
  }
  const { data: values = {} } = secret
  const data = Object.hasOwn(values, ref.key) ? values[ref.key] : undefined
  if (data === undefined) throw new SecretMissingError(`${where} has no key ${ref.key}; add it`)
  const value = textOf(Buffer.from(data, "base64"))
  if (value === undefined) {
    throw new SecretMissingError(
      `${where}: the value of key ${ref.key} can't be a variable: it is not UTF-8, or has NUL`,
    )
  }
  if (value.length > LIMITS.envValue) {
    throw new SecretMissingError(`${where}: the value of key ${ref.key} is longer than ${LIMITS.envValue} characters`)
  }
  return value
}

/** Decodes the bytes as text; undefined if no environment variable can have this value. */
function textOf(bytes: Uint8Array): string | undefined {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes)
    return text.includes("\0") ? undefined : text
  } catch {
    return undefined
  }
}
