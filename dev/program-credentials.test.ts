import { setImmediate as nextTurn } from "node:timers/promises"
import { expect, it } from "vitest"
import type { KubeClient } from "../src/core/kube/client.ts"
import { ManualClock } from "../test/harness/manual-clock.ts"
import { programCredentials } from "./program-credentials.ts"

const cluster = { name: "here", server: "https://127.0.0.1:6443", skipTLSVerify: false }
const serviceAccount = { namespace: "berth-system", name: "berth-facade" }

it("a stack renews a program's token at half of its life, retries after a failure, and stops at the end", async () => {
  const clock = new ManualClock()
  const errors: unknown[] = []
  let asked = 0
  let isAway = false
  const createSubresource = async () => {
    if (isAway) throw new Error("away")
    return { status: { token: `token-${++asked}` } }
  }
  const client = { createSubresource } as unknown as Pick<KubeClient, "createSubresource">
  const onError = (error: unknown) => void errors.push(error)
  const { kubeConfig, stop } = await programCredentials({ client, cluster, serviceAccount, onError, clock })
  const passed = async (seconds: number) => {
    clock.advance(seconds)
    await nextTurn()
    return kubeConfig.getCurrentUser()?.token
  }
  expect(kubeConfig.getCurrentCluster()?.server).toBe(cluster.server)
  expect(await passed(1799)).toBe("token-1")
  expect(await passed(1)).toBe("token-2")
  isAway = true
  expect(await passed(1800)).toBe("token-2")
  expect(errors).toHaveLength(1)
  isAway = false
  expect(await passed(10)).toBe("token-3")
  stop()
  expect(await passed(7200)).toBe("token-3")
  expect(clock.timers).toBe(0)
})

it.each([
  ["ahead by two hours, as after the sleep of a laptop", 7200],
  ["back by a minute, so that the token is one of the future", -60],
])("a stack renews a program's token soon after the calendar jumps %s", async (_, jump) => {
  const clock = new ManualClock()
  let asked = 0
  const client = { createSubresource: async () => ({ status: { token: `token-${++asked}` } }) } as unknown as Pick<
    KubeClient,
    "createSubresource"
  >
  const onError = (error: unknown): void => {
    throw error
  }
  const { kubeConfig, stop } = await programCredentials({ client, cluster, serviceAccount, onError, clock })
  clock.setCalendar(jump)
  for (let look = 0; look < 3; look++) {
    clock.advance(10)
    await nextTurn()
    expect(kubeConfig.getCurrentUser()?.token).toBe("token-2")
  }
  stop()
})

it("a stack does not start a program whose ServiceAccount gets no token", async () => {
  const client = { createSubresource: async () => ({}) } as unknown as Pick<KubeClient, "createSubresource">
  await expect(
    programCredentials({ client, cluster, serviceAccount, onError: () => undefined, clock: new ManualClock() }),
  ).rejects.toThrow("no token came for ServiceAccount berth-facade")
})
