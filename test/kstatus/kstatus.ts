import { answersOf, type GoProgram, goObstacle } from "../go-program.ts"

const KSTATUS: GoProgram = { name: "kstatus", folder: import.meta.dirname }

/** What a suite's hook must allow for the first time of all, milliseconds. */
export const KSTATUS_BUILD_MS = 600_000

/** What kstatus says of an object. */
export interface Verdict {
  status?: "InProgress" | "Failed" | "Current" | "Terminating" | "NotFound" | "Unknown"
  message?: string
  /** Instead, where it can't tell. */
  error?: string
}

/** Why kstatus can't be asked here; undefined: it can. */
export function kstatusObstacle(): Promise<string | undefined> {
  return goObstacle(KSTATUS)
}

/** Asks the real library (sigs.k8s.io/cli-utils/pkg/kstatus), built by Go once, what it says of each object. */
export function kstatusOf(objects: readonly object[]): Promise<Verdict[]> {
  return answersOf(KSTATUS, objects)
}
