import { describe, expect, it } from "vitest"
import { readingOf, type Stats } from "./stats.ts"

const MIB = 1024 * 1024

/** Recorded from Docker 20.10.24 on cgroup v1: a container that has written a file of 48 MiB. */
const V1: Stats = {
  cpu_stats: { cpu_usage: { total_usage: 194_653_729, percpu_usage: [9_518_434, 185_135_295] }, online_cpus: 2 },
  memory_stats: {
    usage: 54_173_696,
    stats: { cache: 51_986_432, inactive_file: 50_376_704, rss: 49_152, total_inactive_file: 50_376_704 },
  },
  networks: { eth0: { rx_bytes: 736, tx_bytes: 0 } },
}

/** Recorded from the same engine after the container's end. */
const ENDED: Stats = { cpu_stats: { cpu_usage: { total_usage: 0 } }, memory_stats: {} }

describe("readingOf", () => {
  it("reads an engine's statistics on cgroup v1", () => {
    expect(readingOf(V1)).toEqual({
      ...{ cpuSeconds: 0.194653729, cpus: 2, receivedBytes: 736, sentBytes: 0 },
      memoryMib: (54_173_696 - 50_376_704) / MIB,
    })
  })

  it("subtracts the inactive files of cgroup v2, which has no counters of single processors", () => {
    const stats: Stats = {
      cpu_stats: { cpu_usage: { total_usage: 2e9 }, online_cpus: 8 },
      memory_stats: { usage: 300 * MIB, stats: { anon: 100 * MIB, file: 200 * MIB, inactive_file: 150 * MIB } },
    }
    expect(readingOf(stats)).toEqual({ cpuSeconds: 2, cpus: 8, memoryMib: 150 })
  })

  it("knows nothing of a container that has ended", () => {
    expect(readingOf(ENDED)).toBeUndefined()
    expect(readingOf({})).toBeUndefined()
  })

  it("adds up all networks, and has no bytes without any", () => {
    const networks = { eth0: { rx_bytes: 1, tx_bytes: 2 }, eth1: { rx_bytes: 10, tx_bytes: 20 } }
    expect(readingOf({ ...V1, networks })).toMatchObject({ receivedBytes: 11, sentBytes: 22 })
    const { networks: _, ...without } = V1
    expect(readingOf(without)?.receivedBytes).toBeUndefined()
  })
})
