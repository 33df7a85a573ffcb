import type { SERVERS } from "../bootstrap/releases.mjs"

export { WORKSHOP_PREFIX } from "../bootstrap/go-build.mjs"
export type { Progress } from "../bootstrap/progress.mjs"
export { cacheDirectory, currentPlatform, ETCD_VERSION, KUBERNETES_VERSION, SERVERS } from "../bootstrap/releases.mjs"

export type ServerName = (typeof SERVERS)[number]

/** Every program that this folder can find or build. */
export type ProgramName = ServerName | "kubectl"

/** Absolute paths of the servers' executables. */
export type Binaries = Readonly<Record<ServerName, string>>

/** Receives one plain line of progress, without its newline. */
export type Report = (line: string) => void

/** A machine type, in Go's words: "linux" or "darwin", "amd64" or "arm64". */
export interface Platform {
  readonly os: string
  readonly arch: string
}
