import type { PriceQuestion, PriceReader } from "../../src/cloud/prices.ts"

/**
 * All that a reader says: by region and way of buying the prices by machine type, and how many calls that took.
 * @param called told of each call
 */
export async function read(reader: PriceReader, question: Omit<PriceQuestion, "onCall">, called?: () => void) {
  const prices: Record<string, Record<string, number>> = {}
  let calls = 0
  const onCall = () => {
    calls++
    called?.()
  }
  try {
    for await (const { region, provisioning, prices: told } of reader({ ...question, onCall }))
      prices[`${region} ${provisioning}`] = Object.fromEntries(told)
    return { prices, calls, error: undefined }
  } catch (error: unknown) {
    return { prices, calls, error }
  }
}
