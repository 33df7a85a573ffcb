/** True for the long run (`npm run test:faults`), which tries everything instead of a sample. */
export const EVERYTHING: boolean = process.env["BERTH_FAULTS"] === "all"

/** Seed of samples and generated tests: the same seed gives the same faults. Set BERTH_FAULTS_SEED for another. */
export const SEED: number = Number(process.env["BERTH_FAULTS_SEED"] ?? "12")

/** Pattern of crash points' titles, to repeat some of them: `sim, success: after create Launch #1`. */
export const ONLY: RegExp | undefined = patternOf(process.env["BERTH_FAULTS_ONLY"])

/** A part of the crash points. `number` counts from 1. */
export interface Slice {
  number: number
  of: number
}

/** Part of the crash points that a long run tries: `BERTH_FAULTS_SLICE=3/24` is the third of 24. Absent: all. */
export const SLICE: Slice | undefined = sliceOf(process.env["BERTH_FAULTS_SLICE"])

/** Time after which a slice begins no further try, minutes. */
export const SLICE_MINUTES = 60

function sliceOf(text: string | undefined): Slice | undefined {
  if (text === undefined) return undefined
  const [number = 0, of = 0] = text.split("/").map(Number)
  if (Number.isInteger(number) && Number.isInteger(of) && number >= 1 && number <= of) return { number, of }
  throw new Error(`BERTH_FAULTS_SLICE is ${JSON.stringify(text)}: give the number of a slice and of all, such as 3/24`)
}

function patternOf(text: string | undefined): RegExp | undefined {
  return text === undefined ? undefined : new RegExp(text)
}
