// Loads the shipped catalogue like a starting program, and prints the time and memory. bench/route.ts runs it in a new
// process each time, because a second load in one process is faster.
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { buildOffers } from "../src/market/catalogue/file.ts"
import { readPriceList } from "../src/market/catalogue/shipped.ts"
import { Catalogue } from "../src/market/router/catalogue.ts"

setFlagsFromString("--expose-gc")
const collect = runInNewContext("gc") as () => void
collect()
const before = used()
const startedAt = performance.now()
const catalogue = new Catalogue(buildOffers(readPriceList()))
const milliseconds = performance.now() - startedAt
collect()
console.log(JSON.stringify({ milliseconds, mebibytes: used() - before, offers: catalogue.size }))

function used(): number {
  const { heapUsed, arrayBuffers } = process.memoryUsage()
  return (heapUsed + arrayBuffers) / 2 ** 20
}
