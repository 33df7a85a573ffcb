import { LocalCloud } from "../../dev/local-cloud/local.ts"
import type { LaunchSpec } from "../../src/clouds/cloud.ts"
import { systemClock } from "../../src/core/apis/clock.ts"

/** Program in place of an operator: launches VMs one after the other, and prints each VM's id as a line. */
interface Order {
  dataDir: string
  agentCommand: string[]
  specs: LaunchSpec[]
}

const order = JSON.parse(process.argv[2] ?? "") as Order
const cloud = new LocalCloud({
  dataDir: order.dataDir,
  agentCommand: order.agentCommand,
  region: "local",
  clock: systemClock,
  onError: (error) => {
    throw error
  },
})
process.stdout.write("ready\n")
for (const spec of order.specs) process.stdout.write(`${(await cloud.launch(spec)).id}\n`)
