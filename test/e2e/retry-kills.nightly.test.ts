import { setTimeout as delay } from "node:timers/promises"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { JobSpec } from "../../src/core/apis/job.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { processRuntime } from "../harness/container-runtime.ts"
import { Installation } from "../harness/installation.ts"

/** Kills of the operator. */
const KILLS = 100
const KILLS_OF_A_JOB = 4
/** VMs of each job: the last one succeeds. */
const ATTEMPTS = 3
const SCRIPT = `echo began $BERTH_LAUNCH; sleep 0.3; [ $BERTH_LAUNCH -ge ${ATTEMPTS} ] || exit 75`
/** In the same VM it would be started again, but the rule decides before. */
const SPEC: Partial<JobSpec> = { maxRetries: 2, retryRules: [{ exitCodes: [75], action: "newVm" }] }

describe("jobs that fail and get new VMs while their operator is killed", { timeout: 3_600_000 }, () => {
  let berth: Installation

  beforeAll(async () => {
    berth = await Installation.create({ name: "retries", kubeconfig: kubeconfigPath(), runtime: processRuntime })
  })
  afterAll(() => berth?.close())

  it(`run each attempt once: ${KILLS} kills at random moments`, async () => {
    const names: string[] = []
    const moments: number[] = []
    for (let kill = 0; kill < KILLS; kill++) {
      if (kill % KILLS_OF_A_JOB === 0) {
        names.push(`job-${kill}`)
        await berth.submit(`job-${kill}`, SCRIPT, SPEC)
      }
      const operator = await berth.startOperator()
      await operator.printed(/"leading"/)
      moments.push(Math.round(Math.random() * 2500))
      await delay(moments.at(-1))
      await berth.killOperator(operator)
    }
    await berth.startOperator()
    await berth.allOver()
    const moment = `killed ${moments.slice(-40).join(", ")} ms after it led`
    const attempts = Array.from({ length: ATTEMPTS }, (_, index) => `began ${index + 1}`)
    const ends = await Promise.all(
      names.map(async (name) => {
        const { phase, launches } = berth.job(name).status ?? {}
        const began = (await berth.log(name)).match(/began \d+/g)
        return { phase, count: launches?.count, retried: launches?.retried, lost: launches?.lost, began }
      }),
    )
    const once = { phase: "succeeded", count: ATTEMPTS, retried: ATTEMPTS - 1, lost: 0, began: attempts }
    expect(ends, moment).toEqual(names.map(() => once))
    expect((await berth.vms()).length, moment).toBe(names.length * ATTEMPTS)
    expect(await berth.runningOn(), moment).toEqual([])
    console.info(`${KILLS} kills, ${names.length} jobs, ${names.length * ATTEMPTS} attempts, none doubled`)
  })
})
