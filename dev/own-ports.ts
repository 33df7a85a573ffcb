import { isFree } from "./controlplane/ports.ts"

const LAST_PORT = 65_535

/** Returns the port of the local issuer: the one after the façade's. If that is 0, returns 0, for any free port. */
export function issuerPort(port: number): number {
  return port === 0 ? 0 : port + 1
}

/** Throws one Error that names every port of the stack on which another program listens. */
export async function requireFreePorts(port: number): Promise<void> {
  if (port === 0) return
  if (port === LAST_PORT) {
    throw new Error(`--port ${port}: sign-in needs the port after it, so give a port from 1 to ${LAST_PORT - 1}`)
  }
  const wanted = [
    { number: port, use: "the REST API" },
    { number: issuerPort(port), use: "sign-in, always on the port after the REST API's" },
  ]
  const free = await Promise.all(wanted.map(({ number }) => isFree(number)))
  const taken = wanted.filter((_, index) => !free[index])
  if (taken.length === 0) return
  const named = taken.map(({ number, use }) => `port ${number} (for ${use})`).join(" and ")
  throw new Error(
    `${named} can't be used on 127.0.0.1: another program listens there, perhaps Berth itself. ` +
      `Stop that program, or choose two other ports: --port ${suggestion(port)} takes ${suggestion(port)} and ${suggestion(port) + 1}`,
  )
}

function suggestion(port: number): number {
  return port < 50_000 ? port + 1000 : 8080
}
