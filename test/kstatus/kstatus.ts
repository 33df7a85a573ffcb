import { answersOf, type GoProgram } from "../go-program.ts"

/** Prints the verdict of kstatus on each object that it reads. */
export const KSTATUS: GoProgram = { name: "kstatus", folder: import.meta.dirname }

/** What kstatus says of an object. */
export interface Verdict {
  status?: "InProgress" | "Failed" | "Current" | "Terminating" | "NotFound" | "Unknown"
  message?: string
  /** Instead, where it can't tell. */
  error?: string
}

/** Asks the real library (sigs.k8s.io/cli-utils/pkg/kstatus), built by Go once, what it says of each object. */
export function kstatusOf(objects: readonly object[]): Promise<Verdict[]> {
  return answersOf(KSTATUS, objects)
}
