import { Registry } from "prom-client"
import { expect, test } from "vitest"
import { agentOf, jobOf, launchOf, offerOf, vmStatus } from "../../../test/harness/builders.ts"
import type { JobStatus, StoredJob } from "../apis/job.ts"
import type { StoredLaunch } from "../apis/launch.ts"
import type { Change } from "../kube/store.ts"
import { type MeasuredObjects, measureJobs } from "./jobs.ts"

test("each failed run after which a job gets another VM is counted once, by its cause, in the leader", async () => {
  const registry = new Registry()
  let change: (change: Change<StoredJob>) => void = () => undefined
  let isLeading = true
  const store = { list: () => [] } as unknown as MeasuredObjects["jobs"]["store"]
  measureJobs(registry, {
    jobs: {
      store,
      onChange: (listener) => {
        change = listener
        return () => undefined
      },
    },
    settled: { phases: () => new Map() },
    launches: { store: store as never, onChange: () => () => undefined },
    isLeading: () => isLeading,
  })
  const failed = (launch: number, reason: string) => ({ launch, reason, time: "2026-01-01T00:00:00Z" })
  const job = (...retries: NonNullable<JobStatus["retries"]>) => jobOf({ status: { retries } })
  const [first, second] = [failed(1, "OutOfMemory"), failed(3, "ContainerFailed")]
  change({ old: job(), current: job(first) } as Change<StoredJob>)
  change({ old: job(first), current: job(first) } as Change<StoredJob>)
  change({ old: job(first), current: job(first, second) } as Change<StoredJob>)
  isLeading = false
  change({ old: job(), current: job(first) } as Change<StoredJob>)
  const lines = (await registry.metrics()).split("\n").filter((line) => line.startsWith("berth_new_vm_retries_total{"))
  expect(lines).toContain('berth_new_vm_retries_total{reason="OutOfMemory"} 1')
  expect(lines).toContain('berth_new_vm_retries_total{reason="ContainerFailed"} 1')
  expect(lines).toContain('berth_new_vm_retries_total{reason="ImagePullFailed"} 0')
})

test("what a run used of its machine is observed once, when its agent reports the end", async () => {
  const registry = new Registry()
  const listeners: ((change: Change<StoredLaunch>) => void)[] = []
  const store = { list: () => [] } as never
  measureJobs(registry, {
    jobs: { store, onChange: () => () => undefined },
    settled: { phases: () => new Map() },
    launches: {
      store,
      onChange: (listener) => {
        listeners.push(listener)
        return () => undefined
      },
    },
    isLeading: () => true,
  })
  const usage = { seconds: 60, cpuMean: 1, cpuPeak: 2, memoryPeakMib: 6144 }
  const finish = { reason: "Succeeded", usage, time: "2026-01-01T00:00:00Z" } as const
  const spec = { offer: offerOf({ cpu: 4, memoryGib: 8 }) }
  const running = launchOf(jobOf(), 1, { spec, status: vmStatus({ agent: agentOf() }) })
  const finished = launchOf(jobOf(), 1, { spec, status: vmStatus({ agent: agentOf({ finish }) }) })
  for (const listener of listeners) {
    listener({ old: running, current: finished } as Change<StoredLaunch>)
    listener({ old: finished, current: finished } as Change<StoredLaunch>)
  }
  const lines = (await registry.metrics()).split("\n")
  expect(lines).toContain("berth_run_cpu_used_ratio_sum 0.25")
  expect(lines).toContain("berth_run_memory_used_ratio_sum 0.75")
  expect(lines).toContain("berth_run_memory_used_ratio_count 1")
})

test("idle VMs are those that wait now, and each takeover is counted once", async () => {
  const registry = new Registry()
  const cached: StoredLaunch[] = []
  const listeners: ((change: Change<StoredLaunch>) => void)[] = []
  measureJobs(registry, {
    jobs: { store: { list: () => [] } as never, onChange: () => () => undefined },
    settled: { phases: () => new Map() },
    launches: {
      store: { list: () => cached } as never,
      onChange: (listener) => {
        listeners.push(listener)
        return () => undefined
      },
    },
    isLeading: () => true,
  })
  const change = (old: StoredLaunch, current: StoredLaunch) => {
    for (const listener of listeners) listener({ old, current } as Change<StoredLaunch>)
  }
  const time = "2026-01-01T00:00:00Z"
  const run = { image: "busybox", reuse: { idleSeconds: 300 } }
  const agent = agentOf({ finish: { reason: "Succeeded", time } })
  const cleaning = launchOf(jobOf(), 1, { spec: { run }, status: vmStatus({ agent }) })
  const idle = launchOf(jobOf(), 2, { spec: { run }, status: vmStatus({ agent: { ...agent, idleTime: time } }) })
  const handed = launchOf(jobOf(), 2, { spec: { run }, status: { ...idle.status, phase: "handedOver", handedTo: "b" } })
  cached.push(cleaning, idle, handed)
  change(idle, handed)
  change(handed, handed)
  const taker = { takesOver: idle.metadata.name }
  const waiting = launchOf(jobOf(), 3, { spec: taker })
  const over = { phase: "terminated", costUsd: 0 } as const
  const lost = launchOf(jobOf(), 3, { spec: taker, status: over })
  change(waiting, lost)
  change(lost, lost)
  change(waiting, launchOf(jobOf(), 3, { spec: { ...taker, ended: true }, status: over }))
  const lines = (await registry.metrics()).split("\n")
  const { cloud, provisioning } = idle.spec.offer
  expect(lines).toContain(`berth_idle_vms{cloud="${cloud}",provisioning="${provisioning}"} 1`)
  expect(lines).toContain(`berth_vms{cloud="${cloud}",provisioning="${provisioning}"} 2`)
  expect(lines).toContain('berth_takeovers_total{outcome="taken"} 1')
  expect(lines).toContain('berth_takeovers_total{outcome="lost"} 1')
})
