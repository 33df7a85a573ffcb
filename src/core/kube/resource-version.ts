/**
 * Compares resource versions. Those of one resource are ordered integers of any size. The API server promises this
 * since Kubernetes 1.35, with a conformance test, and has always implemented it so (etcd's revision). Source: KEP-5504
 * "Comparable Resource Version", kubernetes.io "API Concepts", resource versions. Never compare those of different
 * resources.
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
    throw new TypeError(`resourceVersion "${value}" is not an integer: this API server does not follow Kubernetes' API`)
  }
}
