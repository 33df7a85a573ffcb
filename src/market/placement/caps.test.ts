import { describe, expect, test } from "vitest"
import { agentOf, at, jobOf, launchOf, levelOf, time, vmStatus } from "../../../test/harness/builders.ts"
import type { LaunchSpec } from "../../core/apis/launch.ts"
import { ANNOTATIONS } from "../../core/apis/meta.ts"
import {
  cancelState,
  overCapsText,
  reservedUsd,
  roomUnder,
  spentUsd,
  sumSpending,
  surplusIdle,
  vmCapReached,
} from "./caps.ts"

const liveOf = (spec: Partial<LaunchSpec> = {}) => launchOf(jobOf(), 1, { spec, status: vmStatus() })
const ended = (seconds: number) =>
  launchOf(jobOf(), 1, {
    status: { phase: "terminated", vm: { state: "terminated", terminationTime: time(seconds) }, costUsd: 2 },
  })
const HOUR = 3600
const RUN = { image: "a", timeoutSeconds: 30 * 24 * HOUR }

describe("spending", () => {
  test("counts what lives, and what ended this month", () => {
    const spending = sumSpending([liveOf(), ended(0), ended(-31 * 24 * HOUR)], at(5 + HOUR), HOUR)
    expect(spending).toMatchObject({ vms: 1, hourlyUsd: 0.6, endedUsd: 2, liveUsd: 0.6 })
    expect(spentUsd(spending)).toBe(2.6)
  })

  test("counts an ended VM once: in its Statement, or from its Launch", () => {
    const launch = ended(0)
    const month = (counted: readonly string[], of = launch) =>
      sumSpending([of], at(10), HOUR, { usd: 0, marginUsd: 0, counted: new Set(counted) }).endedUsd
    expect([month([]), month([launch.metadata.name])]).toEqual([2, 0])
    const marked = { ...launch, metadata: { ...launch.metadata, annotations: { [ANNOTATIONS.counted]: "2026-05" } } }
    expect(month([], marked)).toBe(0)
  })

  test.each<[string, Partial<LaunchSpec>, number, number]>([
    ["what was reserved for the timeout", { reservedUsd: 60 }, 10, 60],
    ["an hour, if the Launch names no reservation", {}, 10, 0.6],
    ["as long again, once it runs longer than expected", { reservedUsd: 0.6, run: RUN }, 10 * HOUR, 12],
    ["at most the timeout", { reservedUsd: 0.6, run: { image: "a", timeoutSeconds: 12 * HOUR } }, 10 * HOUR, 7.2],
  ])("expects of a live VM %s", (_, spec, lived, usd) => {
    expect(sumSpending([liveOf(spec)], at(5 + lived), HOUR).expectedUsd).toBeCloseTo(usd, 2)
  })

  test("counts under a strict cap what a VM can cost until its deadline, at its ceiling", () => {
    const spec = { lifetimeSeconds: 10 * HOUR - 270 }
    expect(sumSpending([liveOf(spec)], at(10), HOUR).mostUsd).toBe(6)
    expect(sumSpending([liveOf({ ...spec, ceilingUsd: 1.2 })], at(10), HOUR).mostUsd).toBe(12)
  })

  test("leaves out what a VM cost before the month", () => {
    const lastDay = { ...vmStatus(), vm: { state: "booting" as const, id: "vm-1", createTime: "2026-04-30T14:00:00Z" } }
    const launch = launchOf(jobOf(), 1, {
      spec: { lifetimeSeconds: 40 * HOUR - 270, reservedUsd: 15.6, run: RUN },
      status: lastDay,
    })
    const spending = sumSpending([launch], new Date("2026-05-01T02:00:00Z"), HOUR)
    expect([spending.liveUsd, spending.expectedUsd, spending.mostUsd]).toEqual([1.2, 9.6, 18])
  })
})

describe("idle VMs", () => {
  const waiting = (number: number, idleAt?: number, spec: Partial<LaunchSpec> = {}) =>
    launchOf(jobOf(), number, {
      spec: { run: { image: "a", reuse: { idleSeconds: 300 } }, ...spec },
      status: vmStatus({
        agent: agentOf({
          finish: { reason: "Succeeded", time: time(10) },
          ...(idleAt !== undefined && { idleTime: time(idleAt) }),
        }),
      }),
    })
  const [oldest, newest, older] = [waiting(1, 20), waiting(2, 40), waiting(3, 30)]
  const taker = launchOf(jobOf(), 6, { spec: { takesOver: newest.metadata.name } })
  const ending = waiting(7, 15, { ended: true })

  test.each([
    ["none beyond the cap", [oldest, newest, older], 3, []],
    ["the one that waits longest", [oldest, newest, older], 2, [1]],
    ["all that wait longer than the newest", [oldest, newest, older], 1, [3, 1]],
    ["all under a cap of 0", [oldest, newest, older], 0, [2, 3, 1]],
    ["none that is not clean yet, has no reuse, or ends already", [waiting(4), liveOf(), ending, oldest], 1, []],
    ["none because of one that a job takes", [oldest, newest, taker], 1, []],
    ["none without any", [], 0, []],
  ])("are too many: %s", (_, launches, maxIdleVms, numbers) => {
    expect(surplusIdle(launches, maxIdleVms).map(({ spec }) => spec.number)).toEqual(numbers)
  })

  test("are counted under each level", () => {
    expect(sumSpending([oldest, waiting(4), taker, newest], at(50), HOUR)).toMatchObject({ vms: 3, idleVms: 1 })
  })
})

describe("caps", () => {
  const spending = { vms: 2, hourlyUsd: 0.6, endedUsd: 5, liveUsd: 1, expectedUsd: 2, mostUsd: 4 }

  test("leave what is neither spent nor reserved, at the level that leaves least", () => {
    const project = levelOf({ maxHourlyUsd: 1, maxMonthlyUsd: 10 }, spending)
    const organization = levelOf({ maxMonthlyUsd: 9 }, spending, "organization")
    expect(roomUnder([project, organization])).toEqual({ hourlyUsd: 0.4, monthlyUsd: 2 })
    const strict = levelOf({ maxMonthlyUsd: 10, reserve: "strict" }, spending, "installation")
    expect(roomUnder([project, strict])).toEqual({ hourlyUsd: 0.4, monthlyUsd: 3, strictUsd: 1 })
    expect([reservedUsd(project), reservedUsd(strict)]).toEqual([1, 3])
    expect(roomUnder([levelOf({ maxMonthlyUsd: 2 }, spending)])).toEqual({ monthlyUsd: 0 })
    expect(roomUnder([])).toEqual({})
  })

  test("say with numbers why a job waits", () => {
    const levels = [
      levelOf({ maxMonthlyUsd: 10 }, spending),
      levelOf({ maxMonthlyUsd: 10, reserve: "strict" }, spending, "organization"),
    ]
    const overCaps = { offers: 12, cheapestHourlyUsd: 0.5, cheapestUsd: 2, cheapestMostUsd: 7 }
    expect(overCapsText(levels, overCaps)).toBe(
      "the organization's cap of $10 a month leaves $1: $6 is spent and $3 is reserved for 2 VMs; " +
        "the cheapest of 12 matching offers needs $0.5/h, $2 for the job, and up to $7 until the VM's deadline; " +
        "the job starts when that is left; set timeoutSeconds or maxCostUsd to need less",
    )
    expect(vmCapReached([levelOf({ maxVms: 2 }, spending, "installation")])).toBe(
      "the installation's cap of 2 VMs is reached: it has 2",
    )
  })

  test("cancel running jobs before the end of their VMs exceeds the cap", () => {
    const level = (usd: number) => levelOf({ maxMonthlyUsd: usd, onExceeded: "cancel" }, spending)
    expect(cancelState([level(6.03)]).message).toMatch(/^the project has spent \$6 of its cap of \$6.03 a month/)
    expect(cancelState([level(6.63)])).toEqual({ secondsLeft: expect.closeTo(HOUR, 3) })
    expect(cancelState([levelOf({ maxMonthlyUsd: 1 }, spending)])).toEqual({})
  })
})
