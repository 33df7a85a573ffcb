import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { offerOf } from "../harness/builders.ts"
import { LAUNCH_VERSIONS } from "./model-state.ts"
import { clockAt, launchAt, MINIMUM_SECONDS, objectAt, type VmState, type World } from "./warm-state.ts"

interface Bill {
  begin: number
  end: number
  usd: number
}

/** Returns the bills of a VM's Launches, in the order in which they had it. */
function billsOf(world: World, number: number): Bill[] {
  const bills = world.launches.flatMap(({ vm, object, counted }) => {
    const { vm: billed, costUsd: usd = 0 } = LAUNCH_VERSIONS.get(counted || object)?.status ?? {}
    if (vm !== number || billed?.createTime === undefined) return []
    return [{ begin: Date.parse(billed.createTime), end: Date.parse(billed.terminationTime ?? ""), usd }]
  })
  return bills.sort((one, other) => one.begin - other.begin || one.end - other.end)
}

/** Returns the last version of a Launch, also after its deletion. */
function objectOf(world: World, number: number): StoredLaunch | undefined {
  const { object, counted } = launchAt(world, number)
  return LAUNCH_VERSIONS.get(object || counted)
}

/** Compares the bills of a VM's Launches with the cloud's own one, which knows nothing of Launches. */
export function billFault(world: World, number: number): string | undefined {
  const vm = world.vms[number - 1] as VmState
  if (vm.power === "none" || vm.late) return undefined
  const bills = billsOf(world, number)
  // Without a record and without a list, a cost is unknown.
  if (bills.length === 0) return world.rejected ? undefined : "no Launch pays for it"
  return gapBetween(bills) ?? timeFault(world, vm, bills) ?? sumFault(bills)
}

function gapBetween(bills: readonly Bill[]): string | undefined {
  const isBackwards = bills.some(({ begin, end }) => !(end >= begin))
  if (isBackwards) return "a bill ends before it begins"
  const isGap = bills.some(({ begin }, index) => index > 0 && begin !== bills[index - 1]?.end)
  return isGap ? "two bills do not meet" : undefined
}

function timeFault(world: World, vm: VmState, bills: readonly Bill[]): string | undefined {
  const [begin, gone] = [vm.createdAt, vm.goneAt].map((tick) => clockAt(tick).getTime()) as [number, number]
  const last = bills.at(-1) as Bill
  // A VM whose creation was never recorded is billed from its first message.
  const isRecorded = objectAt(world, vm.root)?.status?.vm?.id !== undefined
  if (isRecorded && bills[0]?.begin !== begin) return "its first seconds are not billed"
  // Without a list, an agent counts as punctual after its finish.
  const isTrusted = world.rejected && objectOf(world, vm.serves)?.status?.agent?.finish !== undefined
  if (last.end < gone && !isTrusted) return `it is billed until ${(gone - last.end) / 1000} s before its end`
  // A VM that had already ended when it was taken over is billed until then, and without a list for as long as it may live.
  const isProved = !world.rejected && last.begin <= gone
  return isProved && last.end > gone ? `it is billed until ${(last.end - gone) / 1000} s after its end` : undefined
}

function sumFault(bills: readonly Bill[]): string | undefined {
  const [first, last] = [bills[0] as Bill, bills.at(-1) as Bill]
  const seconds = Math.max(MINIMUM_SECONDS, (last.end - first.begin) / 1000)
  const cloud = (offerOf().hourlyPriceUsd * seconds) / 3600
  const sum = bills.reduce((total, { usd }) => total + usd, 0)
  return Math.abs(sum - cloud) > 1e-5 ? `its Launches pay ${sum} USD, and the cloud takes ${cloud} USD` : undefined
}
