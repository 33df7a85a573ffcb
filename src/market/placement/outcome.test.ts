import { expect, test } from "vitest"
import { agentOf, jobOf, launchOf, vmStatus } from "../../../test/harness/builders.ts"
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
