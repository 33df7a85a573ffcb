import { expect, it } from "vitest"
import { DEFINITIONS, VM_CLOUDS } from "./definitions.ts"
import { loadProviders } from "./registry.ts"

it("the registry opens a provider for each definition, and one that creates VMs for each definition with VMs", async () => {
  const providers = await loadProviders()
  expect(Object.keys(providers)).toEqual(Object.keys(DEFINITIONS))
  expect(Object.values(providers).every(({ account }) => account !== undefined)).toBe(true)
  expect(VM_CLOUDS.filter((cloud) => providers[cloud]?.region === undefined)).toEqual([])
})
