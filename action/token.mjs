// Prints a token of the workflow for BERTH_AUDIENCE. The command line asks again when the last one ends, after minutes.
// https://docs.github.com/actions/reference/security/oidc

import { setTimeout as delay } from "node:timers/promises"

const {
  ACTIONS_ID_TOKEN_REQUEST_URL: url,
  ACTIONS_ID_TOKEN_REQUEST_TOKEN: bearer,
  BERTH_AUDIENCE: audience = "",
} = process.env

/** Delays before further tries, milliseconds. */
const DELAYS = [1000, 3000]

async function token() {
  const address = new URL(url)
  address.searchParams.set("audience", audience)
  const answer = await fetch(address, { headers: { Authorization: `Bearer ${bearer}`, Accept: "application/json" } })
  if (!answer.ok) throw new Error(`GitHub answered ${answer.status} to the request for an OIDC token`)
  const { value } = await answer.json()
  if (typeof value !== "string") throw new Error("GitHub's answer has no OIDC token")
  return value
}

async function repeated() {
  for (const milliseconds of DELAYS) {
    try {
      return await token()
    } catch {
      await delay(milliseconds)
    }
  }
  return token()
}

if (!url || !bearer) {
  console.error("the job has no OIDC token: give it permissions: {id-token: write}, or give the step an api-key")
  process.exit(1)
}
try {
  process.stdout.write(`${await repeated()}\n`)
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error))
  process.exit(1)
}
