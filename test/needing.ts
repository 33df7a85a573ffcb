import { describe, inject, it } from "vitest"
import type { ToolName } from "./tools.ts"

declare module "vitest" {
  interface ProvidedContext {
    /** Tools that could not be prepared before this run, each with the reason. */
    readonly missingTools: Partial<Record<ToolName, string>>
  }
}

/** Returns why one of these tools is not there; undefined if all are. */
export function missingTool(...names: ToolName[]): string | undefined {
  const missing = inject("missingTools")
  return names.map((name) => missing[name]).find((reason) => reason !== undefined)
}

/**
 * Returns `describe` and `it` for tests that need a part of the machine. If `missing` gives a reason why that part is not
 * there, these tests are skipped and their names carry the reason.
 */
export function needing(missing: string | undefined): { describe: typeof describe; it: typeof it } {
  if (missing === undefined) return { describe, it }
  const suffix = ` (skipped: ${missing})`
  return { describe: skipping(describe, suffix), it: skipping(it, suffix) }
}

function skipping<Declare extends typeof describe | typeof it>(declare: Declare, suffix: string): Declare {
  const skip = declare.skip as unknown as Declarer
  const named =
    (declarer: Declarer): Declarer =>
    (name, ...rest) =>
      declarer(`${String(name)}${suffix}`, ...rest)
  return new Proxy(declare, {
    apply: (_target, _this, [name, ...rest]: [unknown, ...unknown[]]) => named(skip)(name, ...rest),
    get: (target, key) => {
      if (key === "each" || key === "for")
        return (...table: unknown[]) => named((skip as unknown as Record<typeof key, Tabular>)[key](...table))
      // Whatever the condition, what these tests need is not there.
      if (key === "skipIf" || key === "runIf") return () => skipping(declare, suffix)
      return Reflect.get(target, key)
    },
  })
}

type Declarer = (name: unknown, ...rest: unknown[]) => unknown
type Tabular = (...table: unknown[]) => Declarer
