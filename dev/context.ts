import type { Config } from "../src/cli/context.ts"

/** Name of the context of the first stack on this machine. */
const FIRST_NAME = "local"

/**
 * Returns the name of a stack's context. It is the one with the stack's key, or with its address: no other stack is
 * there now. Contexts of other stacks stay, so another one is `local-2`. Pure.
 */
export function contextNameOf(contexts: Config["contexts"], { url, apiKey }: { url: string; apiKey: string }): string {
  for (let number = 1; ; number++) {
    const name = number === 1 ? FIRST_NAME : `${FIRST_NAME}-${number}`
    const context = contexts[name]
    if (context === undefined || context.key === apiKey || context.url === url) return name
  }
}
