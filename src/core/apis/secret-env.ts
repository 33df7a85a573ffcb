import { LIMITS } from "./field-limits.ts"
import type { Run } from "./job.ts"

/** References to the values of a run's secretEnv, by variable. */
export type SecretRefs = NonNullable<Run["secretEnv"]>

/** Type of the Secrets that a Job may read. A Job can't read any other Secret in its namespace. */
export const ENV_SECRET_TYPE = "berth.dev/env"

/** Keys of a Secret, each with the reason why its value can't be a variable, or null if it can. No values. */
export type SecretKeys = Readonly<Record<string, string | null>>

/** Returns what is to be known of a Secret of type `berth.dev/env` without its values. @param data values in base64 */
export function secretKeys(data: Readonly<Record<string, string>> = {}): SecretKeys {
  return Object.fromEntries(Object.entries(data).map(([key, value]) => [key, whyNoVariable(value)]))
}

function whyNoVariable(base64: string): string | null {
  const text = textOf(Buffer.from(base64, "base64"))
  if (text === undefined) return "is not UTF-8, or has NUL"
  return text.length > LIMITS.envValue ? `is longer than ${LIMITS.envValue} characters` : null
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

/**
 * Returns why a run's variables can't all get their values, for people; undefined if they can. It names the first one.
 * @param keysOf the keys of a Secret of type `berth.dev/env` by its name. A Secret of another type must count as missing:
 * the Job must not learn that it exists.
 */
export function whySecretMissing(
  refs: SecretRefs,
  keysOf: (secret: string) => SecretKeys | undefined,
): string | undefined {
  for (const [variable, { secret, key }] of Object.entries(refs)) {
    const where = `secretEnv ${variable}: Secret ${secret}`
    const keys = keysOf(secret)
    if (keys === undefined) return `${where} of type ${ENV_SECRET_TYPE} is not in the job's namespace; create it`
    const fault = Object.hasOwn(keys, key) ? keys[key] : undefined
    if (fault === undefined) return `${where} has no key ${key}; add it`
    if (fault !== null) return `${where}: the value of key ${key} can't be a variable: it ${fault}`
  }
  return undefined
}
