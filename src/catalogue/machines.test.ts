import { describe, expect, test } from "vitest"
import { nvidiaGpusOf } from "../apis/offer.ts"
import { familyOf, MACHINES } from "../machines/machines.ts"
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
    expect(list.machines.length).toBeGreaterThan(3000)
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
