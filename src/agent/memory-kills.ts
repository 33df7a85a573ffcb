import { readIfThere } from "./disk.ts"

/**
 * Returns the number of processes of this machine that the kernel has killed for memory since its boot, in all containers
 * and outside of them (`oom_kill` in man 5 proc_vmstat). Undefined if this system doesn't count them.
 */
export function memoryKills(): number | undefined {
  const [, count] = /^oom_kill (\d+)$/m.exec(readIfThere("/proc/vmstat") ?? "") ?? []
  return count === undefined ? undefined : Number(count)
}
