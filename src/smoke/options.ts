import { InvalidArgumentError, Option } from "commander"
import { CLOUDS } from "../client/providers.ts"
import { SMOKE_KINDS, type SmokeKind } from "./jobs.ts"

/** Choices of a person who runs the smoke test. */
export interface SmokeFlags {
  cloud: string
  region?: string
  image: string
  bucket?: string
  only: SmokeKind[]
  /** Limit of each job's run. */
  minutes: number
  /** Limit of the time that a job waits without a VM. */
  waitMinutes: number
  /** True to run the jobs without a question. */
  yes?: boolean
}

/** Description of the command. */
export const SMOKE_SUMMARY = "Run small jobs on a cloud account, to see if it works."
export const SMOKE_DETAILS =
  "One job runs on demand, one on spot, one with a GPU, and one writes to a bucket. What they may cost at most is shown before. " +
  "The report, in Markdown, is printed to standard output."

/** Returns the flags of the command. */
export function smokeFlags(): Option[] {
  return [
    new Option("--cloud <name>", "cloud to try").choices([...CLOUDS, "local"]).makeOptionMandatory(),
    new Option("--region <name>", "region, or group of regions such as eu (default: any)"),
    new Option("--image <image>", "image of the jobs, with sh and glibc").default("ubuntu:24.04"),
    new Option("--bucket <name>", "bucket for the job that writes and reads a file (default: no such job)"),
    new Option("--only <kinds...>", "jobs to run").choices(SMOKE_KINDS).default([...SMOKE_KINDS]),
    new Option("--minutes <number>", "limit of each job's run").default(10).argParser(minutesFrom(1)),
    new Option("--wait-minutes <number>", "limit of the time that a job waits without a VM")
      .default(5)
      .argParser(minutesFrom(0)),
    new Option("-y, --yes", "run the jobs without a question"),
  ]
}

function minutesFrom(least: number): (text: string) => number {
  return (text) => {
    if (/^\d{1,2}$/.test(text) && Number(text) >= least) return Number(text)
    throw new InvalidArgumentError(`"${text}" is not a number of minutes: give a whole number from ${least} to 99.`)
  }
}
