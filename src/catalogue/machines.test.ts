import { describe, expect, test } from "vitest"
import { nvidiaGpusOf } from "../apis/offer.ts"
import { bootDeadlineOf, familyOf, MACHINES } from "../machines/machines.ts"
import type { Machine } from "../router/table.ts"
import { readPriceList } from "./shipped.ts"
import { whyUnlaunchable } from "./unlaunchable.ts"

const list = readPriceList()

function knownFamily(machine: Machine) {
  const table = MACHINES[machine.cloud]
  return table && familyOf(table, machine)
}

describe("each offer of the shipped list", () => {
  test("is of a family whose needs are known", () => {
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
