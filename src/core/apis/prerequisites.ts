import Type, { type Static } from "typebox"
import { LIMITS } from "./field-limits.ts"
import { ALLOWED, COMPONENT, NAMED_RULE, PATTERN_AS_RULE, StringEnum, Text } from "./schema.ts"

/** Jobs and arrays that a job or an array waits for before it starts. */

/** Outcomes that a dependent may wait for. `ended`: any of them. */
export const AWAITED_OUTCOMES = ["succeeded", "failed", "ended"] as const
export type AwaitedOutcome = (typeof AWAITED_OUTCOMES)[number]

/** Outcome of a prerequisite. `deleted`: it was deleted before it ended. */
export const PREREQUISITE_OUTCOMES = ["succeeded", "failed", "cancelled", "deleted"] as const
export type PrerequisiteOutcome = (typeof PREREQUISITE_OUTCOMES)[number]

/** Pattern of the names of jobs and arrays. */
export const JOB_NAME_PATTERN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

function NameOf(what: string, maxLength: number) {
  return Type.Optional(
    Type.String({
      minLength: 1,
      maxLength,
      pattern: JOB_NAME_PATTERN,
      description: `Name of ${what} of the project. It may be created later.`,
      [ALLOWED]: "a-z, 0-9 and -, with a letter or digit at both ends",
      [PATTERN_AS_RULE]: true,
    }),
  )
}

export const PrerequisiteSchema = Type.Object(
  {
    job: NameOf("a job", LIMITS.jobName),
    array: NameOf("an array", LIMITS.jobArrayName),
    outcome: Type.Optional(
      StringEnum(AWAITED_OUTCOMES, {
        default: "succeeded",
        description: "Outcome that is waited for. After another one the waiting job or array fails.",
      }),
    ),
  },
  { [COMPONENT]: "Prerequisite", [NAMED_RULE]: "jobOrArray" },
)
/** Job or array that must end first. */
export type Prerequisite = Static<typeof PrerequisiteSchema>

/** Field `after` of a job and of an array. */
export const AfterSchema = Type.Array(PrerequisiteSchema, {
  maxItems: LIMITS.prerequisites,
  description:
    "Jobs and arrays of the project that must end first. Until then it is queued (WaitsForJob), without a VM.",
  [NAMED_RULE]: "distinctPrerequisites",
})

/** Field `after` of the status of a job and of an array: what is known of its prerequisites. */
export const ObservedAfterSchema = Type.Array(
  Type.Object({
    job: Type.Optional(Text(LIMITS.jobName, "Name of the job.")),
    array: Type.Optional(Text(LIMITS.jobArrayName, "Name of the array.")),
    uid: Text(64, "Uid of the job or array that had this name first. A later one of the name does not count."),
    outcome: Type.Optional(StringEnum(PREREQUISITE_OUTCOMES, { description: "Its outcome. It never changes again." })),
  }),
  { maxItems: LIMITS.prerequisites, description: "Prerequisites that exist or existed, and their outcomes." },
)
export type ObservedPrerequisite = Static<typeof ObservedAfterSchema>[number]

/** Names of a prerequisite. */
export type PrerequisiteName = Pick<Prerequisite, "job" | "array">

/** Returns the name of a prerequisite as people read and type it: a job's name, or `array/NAME`. */
export function prerequisiteText({ job, array }: PrerequisiteName): string {
  return job ?? `array/${array}`
}

/** Returns true if both name the same object. */
export function isSamePrerequisite(one: PrerequisiteName, other: PrerequisiteName): boolean {
  return one.job === other.job && one.array === other.array
}

/** Returns true if a prerequisite with this outcome lets its dependent start. */
export function isMet({ outcome: awaited = "succeeded" }: Prerequisite, outcome: PrerequisiteOutcome): boolean {
  return awaited === "ended" || awaited === outcome
}
