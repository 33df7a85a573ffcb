// Loads the shipped catalogue as a program does at its start, and prints what that took: for bench/route.ts, which
// runs it in a process of its own, as the second time in the same process is faster.
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { offersOf } from "../src/catalogue/file.ts"
import { readPriceList } from "../src/catalogue/shipped.ts"
import { Catalogue } from "../src/router/catalogue.ts"

setFlagsFromString("--expose-gc")
const collect = runInNewContext("gc") as () => void
collect()
const before = used()
const startedAt = performance.now()
const catalogue = new Catalogue(offersOf(readPriceList()))
const milliseconds = performance.now() - startedAt
collect()
console.log(JSON.stringify({ milliseconds, mebibytes: used() - before, offers: catalogue.size }))

function used(): number {
  const { heapUsed, arrayBuffers } = process.memoryUsage()
  return (heapUsed + arrayBuffers) / 2 ** 20
}
