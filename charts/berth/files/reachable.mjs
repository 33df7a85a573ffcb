// What `helm test` asks: is the façade ready, and does one of the operators lead? After an upgrade both may take a moment.
import { lookup } from "node:dns/promises"
import { setTimeout as delay } from "node:timers/promises"

const { FACADE_URL, METRICS_HOST, METRICS_PORT } = process.env
const PATIENCE_MS = 60_000
const LEADS = /^leader_election_master_status\{.*\} 1$/m

const end = performance.now() + PATIENCE_MS
for (;;) {
  const fault = await faultOfRelease().catch((error) => `${error}: ${error.cause}`)
  if (fault === undefined) break
  console.log(fault)
  if (performance.now() > end) process.exit(1)
  await delay(1000)
}
console.log("all is well")

async function faultOfRelease() {
  const readiness = await fetch(`${FACADE_URL}/readyz`)
  if (!readiness.ok) return `the façade is not ready:\n${await readiness.text()}`
  // Without metrics there is no Service by which operators could be asked.
  if (METRICS_HOST === undefined) return undefined
  const pods = await lookup(METRICS_HOST, { all: true })
  const told = await Promise.all(pods.map(metricsOf))
  return told.some((metrics) => LEADS.test(metrics)) ? undefined : `of ${pods.length} pods none leads as operator`
}

async function metricsOf({ address, family }) {
  const host = family === 6 ? `[${address}]` : address
  // One that is just ending is no fault.
  return await fetch(`http://${host}:${METRICS_PORT}/metrics`).then((answer) => answer.text(), String)
}
