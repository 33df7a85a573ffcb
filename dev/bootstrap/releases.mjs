// @ts-check
// Plain JavaScript without packages, like all of this folder: it also runs on Node.js 20 before node_modules exists.
import { homedir } from "node:os"
import { join } from "node:path"

/** The Kubernetes release of the embedded control plane. All its parts are built from one source tree. */
export const KUBERNETES_VERSION = "v1.35.4"

/** The etcd release with which Kubernetes v1.35 is tested (build/dependencies.yaml of its source). */
export const ETCD_VERSION = "v3.6.6"

/** The servers of a control plane, in the order in which they start. */
export const SERVERS = /** @type {const} */ (["etcd", "kube-apiserver", "kube-controller-manager"])

/** Host of Kubernetes' official programs. */
export const KUBERNETES_ORIGIN = "https://dl.k8s.io"

/** @type {Readonly<Record<string, string>>} */
const GO_ARCHITECTURES = { x64: "amd64", ia32: "386" }

/**
 * Returns this machine in Go's words, from Node's (`process.platform` and `process.arch`).
 * @returns {import("../controlplane/programs.ts").Platform}
 */
export function currentPlatform() {
  return { os: process.platform, arch: GO_ARCHITECTURES[process.arch] ?? process.arch }
}

/**
 * Returns Berth's cache directory by the XDG base directory specification.
 * @param {string | undefined} xdgCacheHome the value of XDG_CACHE_HOME
 */
export function cacheDirectory(xdgCacheHome) {
  return join(xdgCacheHome || join(homedir(), ".cache"), "berth")
}

/**
 * Returns the folder of the cache that holds this release's programs for this machine.
 * @param {string} cacheDir Berth's cache directory
 */
export function programsDirectory(cacheDir) {
  const { os, arch } = currentPlatform()
  return join(cacheDir, "kubernetes", `${KUBERNETES_VERSION}-${os}-${arch}`)
}
