import { CloudError, CredentialsError } from "../core/outbound/errors.ts"
import type { Capability, DenialReason, DiscoveredResource } from "./account.ts"

/** A proven obstacle to a use of an account. */
export interface Obstacle {
  reason: DenialReason
  message: string
  /** Names of the permissions that are missing. */
  missing?: readonly string[]
}

/** Results of several checks of one use. */
export interface Findings {
  obstacles: Obstacle[]
  /** Checks without a clear answer. */
  doubts: string[]
  /** Facts beside the verdict, such as a quota of zero for GPUs. */
  notes: string[]
}

export function noFindings(): Findings {
  return { obstacles: [], doubts: [], notes: [] }
}

/** Merges findings into one verdict: an obstacle outweighs a doubt. Pure. */
export function judgeFindings({ obstacles, doubts, notes }: Findings, granted: string): Capability {
  const [first] = obstacles
  if (first !== undefined) {
    const missing = [...new Set(obstacles.flatMap((obstacle) => obstacle.missing ?? []))]
    const message = obstacles.map((obstacle) => obstacle.message).join("; ")
    return { is: "denied", reason: first.reason, message, ...(missing.length > 0 && { missing }) }
  }
  if (doubts.length > 0) return { is: "unknown", message: [...doubts, ...notes].join("; ") }
  return { is: "granted", message: [granted, ...notes].join("; ") }
}

/** Returns the verdict of a check. An error of the check isn't a verdict: the provider did not answer. */
export async function settleCheck(check: Promise<Capability>): Promise<Capability> {
  try {
    return await check
  } catch (error) {
    return { is: "unanswered", message: `the check failed: ${describe(error)}` }
  }
}

/**
 * Checks if a kind of resources can be listed, by its first page. A rejected list is unclear: rights on single
 * resources are enough for a job that names one.
 */
export function listable(
  things: string,
  list: (signal: AbortSignal) => AsyncIterable<DiscoveredResource[]>,
  signal: AbortSignal,
): Promise<Capability> {
  return settleCheck(
    firstPage(list, signal).then(
      () => ({ is: "granted", message: `the credentials can list ${things}` }),
      (error: unknown) => {
        if (error instanceof CredentialsError) return notListable(things, describe(error))
        throw error
      },
    ),
  )
}

export function notListable(things: string, why: string): Capability {
  return { is: "unknown", message: `the credentials can't list ${things}; a job may still name one (${why})` }
}

async function firstPage(
  list: (signal: AbortSignal) => AsyncIterable<DiscoveredResource[]>,
  signal: AbortSignal,
): Promise<void> {
  for await (const _ of list(signal)) return
}

/** Returns the note on an account in which Berth may not read the consoles of VMs. VMs start all the same. */
export function unreadConsole(right: string): string {
  return `a VM without a way to the gateway can't say why: add ${right}`
}

/** Returns the provider's code and message of an error. */
export function describe(error: unknown): string {
  if (error instanceof CloudError && !error.message.includes(error.code)) return `${error.code}: ${error.message}`
  return error instanceof Error ? error.message : String(error)
}
