import { unlessAborted } from "../../core/apis/abort.ts"
import { inParallel } from "../../core/apis/in-parallel.ts"
import type { Offer } from "../../core/apis/offer.ts"
import { InvalidRequestError, RegionError } from "../../core/outbound/errors.ts"
import type { PricedMachine, PriceQuestion, PriceReaders, QuotedPrices } from "../prices.ts"
import type { ClientOf, Nebius, Project } from "./client.ts"
import { machineOf } from "./request.ts"

const ESTIMATES_AT_A_TIME = 4

/** Answer of the calculator (nebius/billing/v1/calculator.proto). */
interface Estimate {
  totalCosts?: { aggregationUnit?: { unit?: string }; general?: { total?: { cost?: string } } }[]
}

/** Reads the prices of the account: on demand, and spot, which move with the demand. */
export function nebiusPrices(clientOf: ClientOf): PriceReaders {
  return { list: (question) => pricesOf(clientOf(question.credentials), question) }
}

async function* pricesOf(nebius: Nebius, question: PriceQuestion): AsyncGenerator<QuotedPrices> {
  const { regions, machines, signal } = question
  for (const project of await unlessAborted(nebius.projects(), signal)) {
    if (!regions.includes(project.region)) continue
    for (const provisioning of ["onDemand", "spot"] as const) {
      const sold = machines.filter(({ gpu }) => provisioning === "onDemand" || gpu !== undefined)
      const quoted = await inParallel(sold, ESTIMATES_AT_A_TIME, async ({ instanceType }) => {
        question.onCall()
        return [
          instanceType,
          await unlessAborted(hourlyUsd(nebius, project, { instanceType, provisioning }), signal),
        ] as const
      })
      const prices = new Map(quoted.flatMap(([type, usd]) => (usd === undefined ? [] : [[type, usd]])))
      if (prices.size > 0) yield { region: project.region, provisioning, prices }
    }
  }
}

/**
 * Returns the price of a machine without disk and address; undefined if the project's region does not sell it. One at a
 * time: the calculator rejects a whole batch for a machine that it has no price for.
 */
export async function hourlyUsd(
  nebius: Nebius,
  { id: parentId }: Project,
  machine: Pick<PricedMachine & Offer, "instanceType" | "provisioning">,
): Promise<number | undefined> {
  const spec = {
    ...machineOf(machine),
    // A disk of its own would be in the price.
    bootDisk: { attachMode: "READ_WRITE", existingDisk: { id: "computedisk-none" } },
    networkInterfaces: [{ name: "eth0", subnetId: "vpcsubnet-none", ipAddress: {} }],
  }
  const request = {
    "@type": "type.googleapis.com/nebius.compute.v1.CreateInstanceRequest",
    metadata: { parentId },
    spec,
  }
  try {
    const answer = await nebius.call("billing.v1.CalculatorService/EstimateBatch", {
      resourceSpecs: [{ spec: request }],
      currency: "usd",
      filterAggregationUnit: { filterAggregationUnitValues: ["FILTER_AGGREGATION_UNIT_HOUR"] },
    })
    const { totalCosts = [] } = answer as Estimate
    const hour = totalCosts.find(({ aggregationUnit }) => aggregationUnit?.unit?.toLowerCase() === "hour")
    const usd = Number(hour?.general?.total?.cost)
    return usd > 0 ? usd : undefined
  } catch (error) {
    // The calculator knows no price of it.
    if (error instanceof InvalidRequestError || error instanceof RegionError) return undefined
    throw error
  }
}
