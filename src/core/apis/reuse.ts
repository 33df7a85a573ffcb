import Type, { type Static } from "typebox"
import { LIMITS } from "./field-limits.ts"
import { ALLOWED, COMPONENT, Int, PATTERN_AS_RULE } from "./schema.ts"

/** Longest time that a VM waits for another job, seconds. */
export const LONGEST_REUSE_SECONDS = 3600

/** Time that a new VM is billed beyond its job: boot and end, seconds. Clouds need one to three minutes. */
export const VM_OVERHEAD_SECONDS = 120

/** Reuse of a job's VM by later jobs of its project. */
export const ReuseSchema = Type.Object(
  {
    idleSeconds: Int({
      minimum: 0,
      maximum: LONGEST_REUSE_SECONDS,
      description:
        "Seconds that the VM waits for another job after this one. They are billed, and this job's cost has them. 0: the job has a VM of its own, also where the installation has a default.",
    }),
    key: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: LIMITS.groupName,
        pattern: "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description: "Only jobs of the project with the same key share VMs. Default: those without a key.",
        [ALLOWED]: "a-z, 0-9 and -, with a letter or digit at both ends",
        [PATTERN_AS_RULE]: true,
      }),
    ),
  },
  {
    [COMPONENT]: "Reuse",
    description:
      "Lets the job take over the idle VM of an earlier job of its project, and keeps its own VM for later ones. Default: that of the installation, else a VM of its own.",
  },
)
export type Reuse = Static<typeof ReuseSchema>
