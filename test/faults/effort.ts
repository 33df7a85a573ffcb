/** True for the long run (`npm run test:faults`), which tries everything instead of a sample. */
export const EVERYTHING: boolean = process.env["BERTH_FAULTS"] === "all"

/** Seed of samples and generated tests: the same seed gives the same faults. Set BERTH_FAULTS_SEED for another. */
export const SEED: number = Number(process.env["BERTH_FAULTS_SEED"] ?? "12")

/** Pattern of crash points' titles, to repeat some of them: `sim, success: after create Launch #1`. */
export const ONLY: RegExp | undefined = patternOf(process.env["BERTH_FAULTS_ONLY"])

function patternOf(text: string | undefined): RegExp | undefined {
  return text === undefined ? undefined : new RegExp(text)
}
