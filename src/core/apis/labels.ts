import { RESERVED_LABEL_DOMAINS } from "./meta.ts"

/** Kubernetes' "qualified name": the name part of a label key, or a label's non-empty value. */
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

/** Returns true if Kubernetes accepts the value as a label value. */
export function isLabelValue(value: string): boolean {
  return value === "" || QUALIFIED_NAME.test(value)
}

/**
 * Returns the user's labels that are copied from `spec.labels` to `metadata.labels`, for `kubectl get bj -l team=a`.
 * They must match Kubernetes' label syntax and be outside the domains of tools. A tool would adopt, and then prune, an
 * object with its label.
 */
export function mirroredLabels(labels: Readonly<Record<string, string>> | undefined): Record<string, string> {
  return Object.fromEntries(
    Object.entries(labels ?? {}).filter(([key, value]) => isFreeLabelKey(key) && isLabelValue(value)),
  )
}
