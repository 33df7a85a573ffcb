import { homedir } from "node:os"
import { join } from "node:path"

/** The Kubernetes release that the embedded control plane runs; its parts are built from one source tree. */
export const KUBERNETES_VERSION = "v1.35.4"

/** The etcd release that Kubernetes v1.35 is tested with (build/dependencies.yaml of its source). */
export const ETCD_VERSION = "v3.6.6"

/** The servers of a control plane, in the order in which they start. */
export const SERVERS = ["etcd", "kube-apiserver", "kube-controller-manager"] as const

export type ServerName = (typeof SERVERS)[number]

/** Every program that this folder can find or make. */
export type ProgramName = ServerName | "kubectl"

/** Absolute paths of the servers' executables. */
export type Binaries = Readonly<Record<ServerName, string>>

/** Starts the name of a directory, beside the programs, in which one is being made. */
export const WORKSHOP_PREFIX = ".making-"

/** Takes one plain line of progress, without its newline. */
export type Report = (line: string) => void

/** A machine kind, in Go's words: "linux" or "darwin", "amd64" or "arm64". */
export interface Platform {
  readonly os: string
  readonly arch: string
}

const GO_ARCHITECTURES: Readonly<Record<string, string>> = { x64: "amd64", ia32: "386" }

/** This machine in Go's words, from Node's (`process.platform` and `process.arch`). */
export function currentPlatform(): Platform {
  return { os: process.platform, arch: GO_ARCHITECTURES[process.arch] ?? process.arch }
}

/** Berth's cache directory by the XDG base directory specification, given the value of XDG_CACHE_HOME. */
export function cacheDirectory(xdgCacheHome: string | undefined): string {
  return join(xdgCacheHome || join(homedir(), ".cache"), "berth")
}
