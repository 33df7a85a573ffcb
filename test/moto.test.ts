import { expect } from "vitest"
import { startMoto } from "./moto.ts"
import { missingTool, needing } from "./needing.ts"

const { it } = needing(missingTool("moto"))

it("serves two at a time, each with its own world, which it can forget, and ends", async () => {
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

/** What moto knows the service and the region by; it checks no signature unless it is told to. */
const SIGNED = {
  headers: { authorization: "AWS4-HMAC-SHA256 Credential=id/20260101/us-east-1/s3/aws4_request, Signature=none" },
}
