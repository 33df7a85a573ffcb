import { RESERVED_LABEL_DOMAINS } from "./meta.ts"

/** The name part of a label key, and a label's value when it isn't empty (Kubernetes' "qualified name"). */
const QUALIFIED_NAME = /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/
/** Kubernetes' DNS-1123 subdomain, the optional prefix of a label key; at most 253 characters. */
const DNS_SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/
const LONGEST_SUBDOMAIN = 253

function isReserved(domain: string): boolean {
  return RESERVED_LABEL_DOMAINS.some((reserved) => domain === reserved || domain.endsWith(`.${reserved}`))
}

function isFreeLabelKey(key: string): boolean {
  const slash = key.indexOf("/")
  if (slash === -1) return QUALIFIED_NAME.test(key)
  const domain = key.slice(0, slash)
  if (domain.length > LONGEST_SUBDOMAIN || !DNS_SUBDOMAIN.test(domain) || isReserved(domain)) return false
  return QUALIFIED_NAME.test(key.slice(slash + 1))
}

/** Whether Kubernetes takes the value as a label's value. */
export function isLabelValue(value: string): boolean {
  return value === "" || QUALIFIED_NAME.test(value)
}

/**
 * The user's labels (any strings, kept in `spec.labels`) that are mirrored to `metadata.labels`, so that
 * `kubectl get bj -l team=a` works: those that Kubernetes' label syntax allows and whose key is under no
 * tool's domain (a mirrored tool label would make that tool take the object for its own, and prune it).
 */
export function mirroredLabels(labels: Readonly<Record<string, string>> | undefined): Record<string, string> {
  return Object.fromEntries(
    Object.entries(labels ?? {}).filter(([key, value]) => isFreeLabelKey(key) && isLabelValue(value)),
  )
}
