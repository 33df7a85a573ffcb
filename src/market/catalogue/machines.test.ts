import { describe, expect, test } from "vitest"
import { chooseBootDisk } from "../../clouds/machines/disk.ts"
import { type CloudMachines, FAST_DISK_HOURLY_USD, findFamily } from "../../clouds/machines/family.ts"
import { bootDeadlineOf, burstableOf, MACHINES } from "../../clouds/machines/machines.ts"
import { nvidiaGpusOf } from "../../core/apis/offer.ts"
import type { Machine } from "../router/table.ts"
import { readPriceList } from "./shipped.ts"
import { whyUnlaunchable } from "./unlaunchable.ts"

const list = readPriceList()

function knownFamily(machine: Machine) {
  const table = MACHINES[machine.cloud]
  return table && findFamily(table, machine)
}

describe("each offer of the shipped list", () => {
  test("belongs to a family whose needs are known", () => {
    const unknown = list.machines.filter((machine) => knownFamily(machine) === undefined)
    expect(unknown.map(({ instanceType }) => instanceType)).toEqual([])
    expect(list.machines.length).toBeGreaterThan(2900)
  })

  test("can be launched", () => {
    const excluded = new Set<string>()
    for (const [row, number] of list.machine.entries()) {
      const machine = list.machines[number] as Machine
      const region = list.regions[list.region[row] as number]?.name ?? ""
      const reasons = [
        list.onDemand[row] !== 0 && whyUnlaunchable(machine, region, "onDemand"),
        list.spot[row] !== 0 && whyUnlaunchable(machine, region, "spot"),
      ]
      for (const reason of reasons) if (reason) excluded.add(`${machine.instanceType}: ${reason}`)
    }
    expect([...excluded]).toEqual([])
  })

  test("is no bare metal: no question can be answered with a machine that may not boot in time", () => {
    const metal = list.machines.filter(({ instanceType }) => /metal/.test(instanceType))
    expect(metal.map(({ instanceType }) => instanceType)).toEqual([])
  })

  test("has a time to boot", () => {
    expect(list.machines.filter((machine) => bootDeadlineOf(machine) === undefined)).toEqual([])
  })

  test("counts the vCPUs that a machine with shared cores sustains", () => {
    const shared = list.machines.filter(({ cloud, instanceType }) => burstableOf(cloud, instanceType) !== undefined)
    const wrong = shared.filter(({ cloud, instanceType, cpu }) => burstableOf(cloud, instanceType)?.cpu !== cpu)
    expect(wrong).toEqual([])
    expect([...new Set(shared.map(({ cloud }) => cloud))].sort()).toEqual(["aws", "azure", "gcp"])
    // By the clouds' names of their series: T, and B, and machines with shared cores.
    const named = list.machines.filter(({ instanceType }) =>
      /^t\d|^Standard_B|^(f1|g1)-|^e2-(micro|small|medium)$/.test(instanceType.replace(/^t2[ad]-/, "")),
    )
    expect(new Set(named)).toEqual(new Set(shared))
    const cpuOf = (type: string) => list.machines.find(({ instanceType }) => instanceType === type)?.cpu
    expect(
      ["t4g.medium", "t3.2xlarge", "t2.nano", "Standard_B2pls_v2", "Standard_B16as_v2", "e2-micro"].map(cpuOf),
    ).toEqual([0.4, 3.2, 0.05, 0.6, 6.4, 0.25])
  })

  test("has a faster boot disk exactly if it has GPUs and costs enough for it", () => {
    const least = new Map<Machine, number>()
    for (const [row, number] of list.machine.entries()) {
      const [machine, price] = [list.machines[number] as Machine, list.onDemand[row] as number]
      if (price > 0) least.set(machine, Math.min(least.get(machine) ?? Number.POSITIVE_INFINITY, price / 1e6))
    }
    for (const [machine, usd] of least) {
      const { instanceType } = machine
      const [table, boot] = [MACHINES[machine.cloud] as CloudMachines, chooseBootDisk(machine)]
      // These disks have the throughput of their size.
      const isSized = /^(pd-|NETWORK_SSD$)/.test(boot?.types[0] ?? "")
      const isExpensive = nvidiaGpusOf(machine) !== undefined && usd >= FAST_DISK_HOURLY_USD
      expect([instanceType, table.fastDisk.types.test(instanceType)]).toEqual([instanceType, isExpensive && !isSized])
    }
  })

  test("has the GPUs of its family", () => {
    const wrong = list.machines.filter((machine) => {
      const gpus = nvidiaGpusOf(machine)
      const known = knownFamily(machine)?.gpu
      if (gpus === undefined) return known !== undefined
      return !known?.models.includes(gpus.model) || gpus.count < 1 !== (known.fraction === true)
    })
    expect(wrong.map(({ instanceType, gpu }) => ({ instanceType, gpu }))).toEqual([])
  })
})
