import Type, { type Static } from "typebox"
import { LIMITS } from "./field-limits.ts"
import { ALLOWED, COMPONENT, Int, NAMED_RULE, PATTERN_AS_RULE, StringEnum } from "./schema.ts"

/** Rules on the failures of a job: which of them get a new VM. The agent and the job controller apply the same rules. */

/**
 * Failures that a rule may name: reasons of a finish, and causes of a failed container. Missing are those that another VM
 * can't change: budget and timeout of the job, a missing Secret or upload.
 */
export const RETRY_REASONS = [
  "OutOfMemory",
  "ContainerFailed",
  "ImagePullFailed",
  "VolumeMountFailed",
  "VolumeFlushFailed",
  "WorkdirFailed",
] as const
export type RetryReason = (typeof RETRY_REASONS)[number]

export const RETRY_ACTIONS = ["newVm", "fail"] as const

/** Number of new VMs by a rule that names no limit. */
export const DEFAULT_RETRY_LIMIT = 3

/** One exit code of a failure: 1 to 255. */
const CODE = "([1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-5])"

/** Declares an exit code, or a range of them such as `100-119`. */
function ExitCodes() {
  return Type.Unsafe<number | string>({
    "x-kubernetes-int-or-string": true,
    anyOf: [{ type: "integer" }, { type: "string" }],
    minimum: 1,
    maximum: 255,
    maxLength: 7,
    pattern: `^${CODE}(-${CODE})?$`,
    description: "Exit code, or a range such as 100-119.",
    [ALLOWED]: 'an exit code from 1 to 255 such as 75, or a range such as "100-119"',
    [PATTERN_AS_RULE]: true,
    [NAMED_RULE]: "ascendingRange",
  })
}

/** @param checks false for a Launch, which only Berth writes, from a valid Job */
function retryRule(checks: boolean) {
  return Type.Object(
    {
      reasons: Type.Optional(
        Type.Array(StringEnum(RETRY_REASONS), {
          minItems: 1,
          maxItems: RETRY_REASONS.length,
          description: "Reasons of failures to which the rule applies. Default: all of them.",
        }),
      ),
      exitCodes: Type.Optional(
        Type.Array(checks ? ExitCodes() : withoutChecks(ExitCodes()), {
          minItems: 1,
          maxItems: LIMITS.retryExitCodes,
          description: "Exit codes to which the rule applies, such as 75 or 100-119. Default: all of them.",
        }),
      ),
      action: StringEnum(RETRY_ACTIONS, {
        description: "newVm: the job gets another VM. fail: the job fails at once, whatever maxRetries is.",
      }),
      limit: Type.Optional(
        Int({
          minimum: 1,
          maximum: LIMITS.newVms,
          description: `Maximum number of new VMs by this rule. Default: ${DEFAULT_RETRY_LIMIT}.`,
        }),
      ),
    },
    checks ? { [COMPONENT]: "RetryRule", [NAMED_RULE]: "limitOfNewVm" } : {},
  )
}

function withoutChecks<T extends object>(schema: T): T {
  const { pattern: _, [PATTERN_AS_RULE]: __, [NAMED_RULE]: ___, ...rest } = schema as Record<string, unknown>
  return rest as T
}

const DESCRIPTION =
  "Rules on failures of the container, its image, volumes and workdir. The first one that matches decides. Without a match, maxRetries does."

/** Retry rules of a job. */
export const RetryRulesSchema = Type.Array(retryRule(true), { maxItems: LIMITS.retryRules, description: DESCRIPTION })

/** Retry rules of a Launch: those of its job, and the one that `maxMemory` implies. */
export const LaunchedRetryRulesSchema = Type.Array(retryRule(false), {
  maxItems: LIMITS.retryRules + 1,
  description: DESCRIPTION,
})

export type RetryRule = Static<typeof RetryRulesSchema>[number]

/** Failure of a Launch's run, as far as rules look at it. */
export interface Failure {
  reason: string
  cause?: string
  exitCode?: number
}

/** Rule that `maxMemory` implies. It ends when the memory can't grow any more. */
const GROWTH: RetryRule = { reasons: ["OutOfMemory"], action: "newVm" }

/** Returns the rules of a job in their order: its own, then the one that `maxMemory` implies. */
export function rulesOf(spec: { retryRules?: readonly RetryRule[]; maxMemory?: string }): readonly RetryRule[] {
  return [...(spec.retryRules ?? []), ...(spec.maxMemory === undefined ? [] : [GROWTH])]
}

/** Returns true if a rule is the one that `maxMemory` implies. It has no limit. */
export function isGrowth(rule: RetryRule): boolean {
  return rule === GROWTH
}

/** Returns the first rule that matches a failure; undefined: none does. */
export function matchingRule(rules: readonly RetryRule[], failure: Failure): RetryRule | undefined {
  return isRetryable(failure) ? rules.find((rule) => matches(rule, failure)) : undefined
}

/** An idle run would be idle again, on another VM. */
function isRetryable({ reason, cause }: Failure): boolean {
  return cause !== "Idle" && (RETRY_REASONS as readonly string[]).includes(reason)
}

function matches({ reasons, exitCodes }: RetryRule, { reason, cause, exitCode }: Failure): boolean {
  const isReason = reasons?.some((each) => each === reason || each === cause) ?? true
  return isReason && (exitCodes?.some((codes) => includesCode(codes, exitCode)) ?? true)
}

function includesCode(codes: number | string, exitCode: number | undefined): boolean {
  if (exitCode === undefined) return false
  const [low, high = low] = String(codes).split("-").map(Number)
  return low !== undefined && high !== undefined && low <= exitCode && exitCode <= high
}
