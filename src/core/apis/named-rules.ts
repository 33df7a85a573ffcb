import { parseSize } from "./quantity.ts"
import { SIZE_PATTERN } from "./schema.ts"

/** A rule on a value that JSON Schema can't say: once for the API server, and once for the REST API and the command line. */
interface NamedRule {
  /** CEL expression (https://kubernetes.io/docs/reference/using-api/cel/). */
  rule: string
  /** Field of the object that the rule is about. Absent: the value itself. */
  field?: string
  /** End of the sentence about the field. */
  message: string
  holds: (value: unknown) => boolean
}

const SIZE = new RegExp(SIZE_PATTERN, "u")

/** Returns the bytes of a size; undefined for a value that is none, which another rule reports. */
function sizeOf(value: unknown): number | undefined {
  return typeof value === "string" && SIZE.test(value) ? parseSize(value) : undefined
}

/** Returns a field of an object; undefined for a value that is none. */
function fieldOf(value: unknown, field: string): unknown {
  return typeof value === "object" && value !== null ? (value as Readonly<Record<string, unknown>>)[field] : undefined
}

/** The rules by the names that a schema's NAMED_RULE has. */
const NAMED_RULES: Readonly<Record<string, NamedRule>> = {
  ascendingRange: {
    rule: "!string(self).matches('^[0-9]+-[0-9]+$') || int(string(self).split('-')[0]) <= int(string(self).split('-')[1])",
    message: "must have its lower exit code first, such as 100-119",
    holds: (value) => {
      const [, low, high] = /^([0-9]+)-([0-9]+)$/.exec(String(value)) ?? []
      return low === undefined || Number(low) <= Number(high)
    },
  },
  limitOfNewVm: {
    rule: "!has(self.limit) || self.action == 'newVm'",
    field: "limit",
    message: "is only for the action newVm",
    holds: (value) => fieldOf(value, "limit") === undefined || fieldOf(value, "action") === "newVm",
  },
  writableCheckpoints: {
    rule: "!(has(self.readOnly) && self.readOnly && has(self.checkpoint) && self.checkpoint)",
    field: "readOnly",
    message: "must not be true with checkpoint: remove one of them",
    holds: (value) => fieldOf(value, "readOnly") !== true || fieldOf(value, "checkpoint") !== true,
  },
  growsMemory: {
    rule:
      "!has(self.maxMemory) || !has(self.resources) || !has(self.resources.memory) || !isQuantity(self.maxMemory) || " +
      "!isQuantity(self.resources.memory) || !quantity(self.maxMemory).isLessThan(quantity(self.resources.memory))",
    field: "maxMemory",
    message: "must be at least resources.memory",
    holds: (value) => {
      const most = sizeOf(fieldOf(value, "maxMemory"))
      const least = sizeOf(fieldOf(fieldOf(value, "resources"), "memory"))
      return most === undefined || least === undefined || most >= least
    },
  },
  jobOrArray: {
    rule: "has(self.job) != has(self.array)",
    message: "must have either job or array",
    holds: (value) => (fieldOf(value, "job") === undefined) !== (fieldOf(value, "array") === undefined),
  },
  reuseWithoutMaxCost: {
    rule: "!has(self.reuse) || !has(self.maxCostUsd)",
    field: "reuse",
    message:
      "can't be combined with maxCostUsd: only the VM's own timer keeps a job within maxCostUsd, and a VM that waits for other jobs lives longer",
    holds: (value) => fieldOf(value, "reuse") === undefined || fieldOf(value, "maxCostUsd") === undefined,
  },
  distinctPrerequisites: {
    rule:
      "self.all(one, self.exists_one(other, (has(one.job) ? one.job : '') == (has(other.job) ? other.job : '') && " +
      "(has(one.array) ? one.array : '') == (has(other.array) ? other.array : '')))",
    message: "must name each job and each array once",
    holds: (value) => {
      const names = Array.isArray(value) ? value.map((one) => `${fieldOf(one, "job")}/${fieldOf(one, "array")}`) : []
      return new Set(names).size === names.length
    },
  },
}

/** Returns the rules of a schema's NAMED_RULE. @throws TypeError for a name that no rule has */
export function namedRules(names: unknown): NamedRule[] {
  return [names].flat().map((name) => {
    const named = NAMED_RULES[String(name)]
    if (named === undefined) throw new TypeError(`there is no rule ${name}`)
    return named
  })
}

/** Returns the first rule of a schema's NAMED_RULE that a value breaks; undefined: none. */
export function brokenRule(names: unknown, value: unknown): NamedRule | undefined {
  return namedRules(names).find(({ holds }) => !holds(value))
}
