import { setTimeout as delay } from "node:timers/promises"
import type { Cloud, Scope, Vm } from "../cloud/provider.ts"

/** Between two looks at VMs that are ending. */
const LOOK_MS = 200

/**
 * Ends every VM and waits until each is gone, at most `seconds`.
 * @returns how many there were, and the names of those that are still ending
 */
export async function powerOff(
  cloud: Cloud,
  scope: Scope,
  seconds: number,
): Promise<{ ended: number; left: string[] }> {
  const living = async () => (await cloud.list(scope)).filter(({ state }) => state !== "terminated")
  const found = await living()
  await Promise.all(found.map((vm) => cloud.terminate(vm)))
  const deadline = performance.now() + seconds * 1000
  let left: Vm[] = found
  while (left.length > 0 && performance.now() < deadline) {
    await delay(LOOK_MS)
    left = await living()
  }
  return { ended: found.length - left.length, left: left.map(({ launch }) => launch) }
}
