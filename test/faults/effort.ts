/** Whether this is the long run (`npm run test:faults`), which tries everything instead of a sample. */
export const EVERYTHING: boolean = process.env["BERTH_FAULTS"] === "all"

/** What samples and generated tests are drawn by: the same seed, the same faults. Set BERTH_FAULTS_SEED for another. */
export const SEED: number = Number(process.env["BERTH_FAULTS_SEED"] ?? "12")

/** Of the crash points only those whose titles match, to see one of them again: `sim, success: after create Launch #1`. */
export const ONLY: RegExp | undefined = patternOf(process.env["BERTH_FAULTS_ONLY"])

function patternOf(text: string | undefined): RegExp | undefined {
  return text === undefined ? undefined : new RegExp(text)
}
