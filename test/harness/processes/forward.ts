import { once } from "node:events"
import { connect, createServer } from "node:net"
import { pipeline } from "node:stream"
import { socketOf } from "../cable.ts"
import { configuration, ready, stopSignal } from "./entry.ts"

/** Configuration of the inner end of a cable. */
export interface ForwardConfig {
  /** Folder of the cable's sockets. */
  folder: string
  ports: readonly number[]
}

const { folder, ports } = configuration<ForwardConfig>()
const stop = stopSignal()
for (const port of ports) {
  const server = createServer((near) => {
    const far = connect(socketOf(folder, port))
    // Either end's error or close ends both.
    pipeline(near, far, () => undefined)
    pipeline(far, near, () => undefined)
  }).listen(port, "127.0.0.1")
  await once(server, "listening")
}
ready({})
if (!stop.aborted) await once(stop, "abort")
process.exit(0)
