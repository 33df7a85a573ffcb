import { answersOf, type GoProgram } from "../go-program.ts"

/** Program that prints the verdict of kstatus on each object that it reads. */
export const KSTATUS: GoProgram = { name: "kstatus", folder: import.meta.dirname }

/** Verdict of kstatus on an object. */
export interface Verdict {
  status?: "InProgress" | "Failed" | "Current" | "Terminating" | "NotFound" | "Unknown"
  message?: string
  /** Error in place of a verdict. */
  error?: string
}

/** Returns the verdicts of the real library (sigs.k8s.io/cli-utils/pkg/kstatus), which Go builds once. */
export function kstatusOf(objects: readonly object[]): Promise<Verdict[]> {
  return answersOf(KSTATUS, objects)
}
