/**
 * Resource versions of one resource are ordered integers of any size: the API server promises it since
 * Kubernetes 1.35, with a conformance test, and implements it so since always (etcd's revision).
 * Source: KEP-5504 "Comparable Resource Version", kubernetes.io "API Concepts", resource versions.
 * Never compare those of different resources.
 */
export function compareResourceVersions(a: string, b: string): number {
  assertResourceVersion(a)
  assertResourceVersion(b)
  if (a.length !== b.length) return a.length - b.length
  if (a === b) return 0
  return a < b ? -1 : 1
}

function assertResourceVersion(value: string): void {
  if (!/^(0|[1-9]\d*)$/.test(value)) {
    throw new TypeError(`resourceVersion "${value}" is not an integer: this API server is no Kubernetes we can read`)
  }
}
