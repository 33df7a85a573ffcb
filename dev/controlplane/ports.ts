import { createServer } from "node:net"

/** Returns a free TCP port of 127.0.0.1: `preferred` if it is free, else one that the system picks. */
export async function freePort(preferred?: number): Promise<number> {
  if (preferred !== undefined) {
    const port = await tryPort(preferred)
    if (port !== undefined) return port
  }
  const port = await tryPort(0)
  if (port === undefined) throw new Error("the system has no free TCP port on 127.0.0.1")
  return port
}

/** Returns true if a TCP port of 127.0.0.1 is free now. */
export async function isFree(port: number): Promise<boolean> {
  return (await tryPort(port)) !== undefined
}

function tryPort(port: number): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE" || error.code === "EACCES") resolve(undefined)
      else reject(error)
    })
    server.listen(port, "127.0.0.1", () => {
      const address = server.address()
      server.close(() => resolve(typeof address === "object" ? address?.port : undefined))
    })
  })
}
