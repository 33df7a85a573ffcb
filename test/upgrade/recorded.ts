import { execFile } from "node:child_process"
import { join } from "node:path"
import { promisify } from "node:util"

/** File that the recorded job `running` waits for. */
export const GATE = "/tmp/berth-upgrade-go"

/** Recorded objects of a version, as REST showed them. */
export interface RecordedVersion {
  version: string
  /** Developer's key of the project. It is valid in this data only. */
  key: string
  /** Idempotency-Key with which the job `ended` was submitted, and the body. */
  idempotencyKey: string
  submission: object
  /** Records by the path of their GET. */
  records: Record<string, object>
}

/** Returns the folder with the recorded data of a version. */
export function recordedFolder(version: string): string {
  return join(import.meta.dirname, version)
}

/** Unpacks the program of a version into the folder. Returns the path of its `berth.mjs`. */
export async function unpackProgram(version: string, folder: string): Promise<string> {
  await promisify(execFile)("tar", ["-xJf", join(recordedFolder(version), "program.tar.xz"), "-C", folder])
  return join(folder, "berth", "berth.mjs")
}

/** Manifests that a version installs. */
export interface RecordedManifests {
  /** Folders for `kubectl apply -k`: the kinds alone, and the kinds with rights and policies. */
  crds: string
  base: string
  chart: string
}

/** Unpacks the kinds, rights, policies and the chart of a version into the folder. */
export async function unpackManifests(version: string, folder: string): Promise<RecordedManifests> {
  await promisify(execFile)("tar", ["-xJf", join(recordedFolder(version), "manifests.tar.xz"), "-C", folder])
  return { crds: join(folder, "crds"), base: join(folder, "manifests", "base"), chart: join(folder, "charts", "berth") }
}
