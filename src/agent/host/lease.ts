import { readFileSync } from "node:fs"

/** Clock that also counts the time in which the machine is suspended (CLOCK_BOOTTIME). No one can set it. */
export interface BootClock {
  /** Id of the machine's present boot. Times of another one can't be compared. */
  readonly boot: string
  /** Seconds since that boot. */
  seconds(): number
}

/** Returns the clock of this machine. @throws Error on systems without Linux's /proc */
export function systemBootClock(): BootClock {
  return {
    boot: readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim(),
    seconds: () => Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]),
  }
}

/** Time until which a host may run a job, by the clock of one boot. */
export interface Lease {
  boot: string
  /** Seconds since that boot. */
  end: number
}

/** Returns the seconds that are left of a lease, at most 0 if it is over. After a reboot it is. */
export function secondsLeft(lease: Lease | undefined, clock: BootClock): number {
  return lease?.boot === clock.boot ? lease.end - clock.seconds() : 0
}
