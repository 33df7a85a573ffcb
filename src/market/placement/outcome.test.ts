import { expect, test } from "vitest"
import { agentOf, jobOf, launchOf, offerOf, vmStatus } from "../../../test/harness/builders.ts"
import { bootProgress } from "./outcome.ts"

test("a VM that never reached the gateway names the way out that its settings need", () => {
  const progress = (publicAddress?: boolean, status = vmStatus()) =>
    bootProgress(
      launchOf(jobOf(), 1, { spec: publicAddress === undefined ? {} : { network: { publicAddress } }, status }),
    )
  expect(progress(false)).toMatch(/has no public address.*NAT gateway.*`publicAddress: true`/)
  for (const isPublic of [true, undefined]) {
    expect(progress(isPublic)).toMatch(/Check the subnet's route/)
    expect(progress(isPublic)).not.toContain("NAT")
  }
  expect(progress(false, vmStatus({ agent: agentOf() }))).toMatch(/pulling its image/)
})

test("an own machine that never began its job names its host, which has no subnet of Berth's", () => {
  const offer = offerOf({ cloud: "own", instanceType: "gpu-1" })
  const text = bootProgress(launchOf(jobOf(), 1, { spec: { offer }, status: vmStatus() }))
  expect(text).toMatch(/^the host of machine gpu-1 did not begin it\. Check that the host runs and reaches https?:/)
  expect(text).not.toContain("subnet")
})
