import { Option } from "commander"
import type { JobStatus } from "../../client/client.ts"
import { collectOption } from "../command.ts"
import { usageError } from "../exit.ts"

const STATUSES = ["queued", "booting", "running", "succeeded", "failed", "cancelled"] as const

/** Flags that select jobs. */
export interface Filter {
  status?: JobStatus
  tag?: string[]
  label?: string[]
}

export function filterOptions(): Option[] {
  return [
    new Option("--status <status>", "only jobs with this status").choices(STATUSES),
    new Option("--tag <tag>", "only jobs with this tag; may be repeated").argParser(collectOption),
    new Option("-l, --label <name=value>", "only jobs with this label; may be repeated").argParser(collectOption),
  ]
}

/** Returns the flag that selects what names a job or an array. @param what such as `jobs` */
export function afterOption(what: string): Option {
  return new Option("--after <name>", `only ${what} that wait, or waited, for this job, or array/NAME`)
}

/** Returns name and value of a label. @throws Failure that names the flag */
export function parseLabel(text: string): [string, string] {
  const at = text.search(/[:=]/)
  if (at < 1) throw usageError(`--label ${text} has no value: write NAME=VALUE.`)
  return [text.slice(0, at), text.slice(at + 1)]
}
