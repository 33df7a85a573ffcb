import { randomInt } from "node:crypto"
import { createServer } from "node:net"

/**
 * Ports to choose from. The system picks higher ones for every connection, and for all who let it pick: one that was free
 * a moment ago may be taken before its program listens. These are only taken by name.
 */
const [LOWEST, HIGHEST] = [20_000, 29_999]

const TRIES = 100

/** Ports that this process has given away. Their programs may not listen yet. */
const given = new Set<number>()

/** Returns a free TCP port of 127.0.0.1: `preferred` if it is free, else one by chance. */
export async function freePort(preferred?: number): Promise<number> {
  if (preferred !== undefined && (await isFree(preferred))) return preferred
  for (let tries = 0; tries < TRIES; tries++) {
    const port = randomInt(LOWEST, HIGHEST + 1)
    if (given.has(port)) continue
    given.add(port)
    if (await isFree(port)) return port
  }
  throw new Error(`none of ${TRIES} TCP ports on 127.0.0.1 was free`)
}

/** Returns true if a TCP port of 127.0.0.1 is free now. */
export function isFree(port: number): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE" || error.code === "EACCES") resolve(false)
      else reject(error)
    })
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)))
  })
}
