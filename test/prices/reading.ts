import type { PriceQuestion, PriceReader } from "../../src/clouds/prices.ts"

/**
 * Returns all prices of a reader by region, way of buying and machine type, and the number of its calls. @param called
 * receives each call
 */
export async function read(reader: PriceReader, question: Omit<PriceQuestion, "onCall">, called?: () => void) {
  const prices: Record<string, Record<string, number>> = {}
  let calls = 0
  const onCall = () => {
    calls++
    called?.()
  }
  try {
    for await (const { region, provisioning, prices: quoted } of reader({ ...question, onCall }))
      prices[`${region} ${provisioning}`] = Object.fromEntries(quoted)
    return { prices, calls, error: undefined }
  } catch (error: unknown) {
    return { prices, calls, error }
  }
}
