import { readdirSync } from "node:fs"
import { LocalCloud } from "../../dev/local-cloud/local.ts"
import { systemClock } from "../../src/core/apis/clock.ts"

/**
 * Program in place of an operator: lists the VMs of a folder twice. Prints their number, the milliseconds of both lists, and
 * the most open files that it saw. Arguments: the folder.
 */
const [dataDir = ""] = process.argv.slice(2)
const cloud = new LocalCloud({
  dataDir,
  agentCommand: [],
  region: "local",
  clock: systemClock,
  onError: (error) => {
    throw error
  },
})
let files = 0
const countFiles = (): void => {
  files = Math.max(files, readdirSync("/proc/self/fd").length)
}
const milliseconds: number[] = []
let vms = 0
for (let look = 0; look < 2; look++) {
  const begun = performance.now()
  const counting = setInterval(countFiles, 1)
  vms = (await cloud.list({ installation: "i", region: "local" })).length
  clearInterval(counting)
  milliseconds.push(Math.round(performance.now() - begun))
}
process.stdout.write(`${JSON.stringify({ vms, milliseconds, files })}\n`)
