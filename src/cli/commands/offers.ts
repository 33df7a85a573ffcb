import { type Command, Option } from "commander"
import { readBody, type Schemas } from "../../client/client.ts"
import { CLOUDS } from "../../client/providers.ts"
import { joinWithOr } from "../../client/words.ts"
import { defined } from "../../core/apis/defined.ts"
import { type Commands, collectOption } from "../command.ts"
import { EXIT, usageError } from "../exit.ts"
import { gibText } from "../table.ts"

type OfferList = Schemas["OfferList"]

interface OfferFlags {
  gpu?: string
  cpu?: string
  memory?: string
  disk?: string
  region?: string[]
  cloud?: string[]
  spot?: boolean
  limit: string
}

/** `offers`: prices of machines, without a job and without a connection. */
export function addOffersCommand(commands: Commands, program: Command): void {
  commands.add<OfferFlags>(program, {
    usage: "offers",
    summary: "List the cheapest machines and your own, without a job and without a connection.",
    more: "Exit code 3: nothing fits.",
    examples: [
      ["berth offers --gpu L4 --region eu", "the cheapest machines with an L4 in Europe"],
      ["berth offers --cpu 16 --memory 64Gi --spot", "spot machines"],
    ],
    options: [
      new Option("--gpu <gpu>", "model (L4), model and number (L4:2) or memory (A100:80Gi), or GPU memory (24Gi)"),
      new Option("--cpu <number>", "minimum number of vCPUs; default: 1"),
      new Option("--memory <size>", "minimum memory, such as 16Gi"),
      new Option("--disk <size>", "minimum disk, such as 100Gi"),
      new Option("--region <region>", "region, or us, eu, asia …; may be repeated").argParser(collectOption),
      new Option("--cloud <cloud>", `${joinWithOr(CLOUDS)}; may be repeated`).argParser(collectOption),
      new Option("--spot", "spot machines"),
      new Option("--limit <number>", "largest number of offers, up to 200").default("20"),
    ],
    run: async (call) => {
      const { offers, total, message } = await readBody(
        call.client().api.GET("/offers", { params: { query: queryOf(call.options) } }),
      )
      const isAnyTaken = offers.some(({ unavailable }) => (unavailable ?? null) !== null)
      await call.print(
        offers,
        isAnyTaken ? [...COLUMNS, UNAVAILABLE] : COLUMNS,
        ({ provider, instance_type }) => `${provider}/${instance_type}`,
      )
      if (offers.length < total) call.terminal.progress(`${offers.length} of ${total} offers; --limit shows more.`)
      if (message !== null) call.terminal.warn(message)
      return total === 0 ? EXIT.nothingFits : 0
    },
  })
}

const COLUMNS = [
  { title: "CLOUD", cell: ({ provider }: Offer) => provider },
  { title: "MACHINE", cell: ({ instance_type }: Offer) => instance_type },
  { title: "REGION", cell: ({ region }: Offer) => region },
  { title: "vCPU", cell: ({ cpu }: Offer) => String(cpu), alignsRight: true },
  { title: "MEM", cell: ({ memory }: Offer) => gibText(memory), alignsRight: true },
  { title: "GPU", cell: ({ gpu }: Offer) => (gpu === null ? "" : `${gpu.count}×${gpu.model}`) },
  { title: "USD/H", cell: ({ total_usd_per_hour }: Offer) => total_usd_per_hour.toFixed(4), alignsRight: true },
  { title: "BUY", cell: ({ provisioning }: Offer) => (provisioning === "spot" ? "spot" : "on demand"), isWide: true },
  { title: "ARCH", cell: ({ architecture }: Offer) => architecture, isWide: true },
  { title: "PRICED", cell: ({ price_date }: Offer) => price_date ?? "", isWide: true },
]

/** Column for own machines that get no job now. */
const UNAVAILABLE = { title: "WHY NOT NOW", cell: ({ unavailable }: Offer) => unavailable ?? "" }

type Offer = OfferList["offers"][number]

function queryOf({ cpu, spot, limit, cloud, ...rest }: OfferFlags) {
  const { gpu, memory, disk, region } = rest
  return {
    ...defined({ gpu, memory, disk, region }),
    ...(cpu !== undefined && { cpu: numberOf("--cpu", cpu) }),
    ...(cloud !== undefined && { cloud: cloud as (typeof CLOUDS)[number][] }),
    ...(spot === true && { provisioning: "spot" as const }),
    limit: numberOf("--limit", limit),
  }
}

function numberOf(flag: string, text: string): number {
  const number = Number(text)
  if (text.trim() === "" || Number.isNaN(number)) throw usageError(`${flag} ${text} is not a number.`)
  return number
}
