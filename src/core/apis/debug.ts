import Type, { type Static } from "typebox"
import { COMPONENT, Int } from "./schema.ts"

/** Longest time that a failed job's VM is kept, seconds. */
export const LONGEST_KEEP_SECONDS = 14_400

/** Fields with which a job prepares the search for the cause of its failure. */
export const DebugSchema = Type.Object(
  {
    keepSeconds: Int({
      minimum: 1,
      maximum: LONGEST_KEEP_SECONDS,
      description:
        "Seconds for which the VM is kept after the container failed. A session opens a copy of the failed container there. They are billed, and this job's cost has them.",
    }),
  },
  {
    [COMPONENT]: "Debug",
    description:
      "Keeps the VM of a failed job for sessions. Needs an installation that allows sessions. Default: the VM ends at once.",
  },
)
export type Debug = Static<typeof DebugSchema>
