import { expect } from "vitest"
import { startMoto } from "./moto.ts"
import { missingTool, needing } from "./needing.ts"

const { it } = needing(missingTool("moto"))

it("two moto servers run at once, each with its own state, reset it, and stop", async () => {
  const [first, second] = await Promise.all([startMoto(), startMoto()])
  const bucketsOf = async ({ url }: { url: string }) =>
    [...(await (await fetch(`${url}/?list-type=2`, SIGNED)).text()).matchAll(/<Name>(.*?)<[/]Name>/g)].map(
      ([, name]) => name,
    )
  expect(await fetch(`${first.url}/one`, { ...SIGNED, method: "PUT" })).toMatchObject({ status: 200 })
  expect(await bucketsOf(first)).toEqual(["one"])
  expect(await bucketsOf(second)).toEqual([])
  await first.reset()
  expect(await bucketsOf(first)).toEqual([])
  await Promise.all([first.stop(), second.stop()])
  await expect(bucketsOf(first)).rejects.toThrow("fetch failed")
})

/** Credential scope by which moto finds service and region. It checks no signature by default. */
const SIGNED = {
  headers: { authorization: "AWS4-HMAC-SHA256 Credential=id/20260101/us-east-1/s3/aws4_request, Signature=none" },
}
