import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"

/** Fault of one request. */
export type Fault =
  /** Answers in place of the API. */
  | { status: number; headers?: Record<string, string> }
  /** Passes the request on, and cuts the connection after so many bytes of the response's body. */
  | { cutAfter: number }
  /** Passes the request on, and cuts the connection in place of its response. */
  | "lose the response"

export interface FaultyProxy {
  url: string
  /** Requests, as `METHOD path`. */
  requests: string[]
  /** Idempotency-Keys of the requests that had one. */
  keys: string[]
  /** Faults of the next requests whose `METHOD path` contains the text. */
  next: (text: string, ...faults: Fault[]) => void
  /** Plans no faults any more. */
  forget: () => void
  close: () => Promise<void>
}

/** Starts a proxy in front of an API on this machine. Without faults it passes all on. */
export async function startFaultyProxy(port: () => number): Promise<FaultyProxy> {
  const planned: { text: string; fault: Fault }[] = []
  const requests: string[] = []
  const keys: string[] = []
  const server = createServer((req, res) => {
    const line = `${req.method} ${req.url}`
    requests.push(line)
    const key = req.headers["idempotency-key"]
    if (typeof key === "string") keys.push(key)
    const at = planned.findIndex(({ text }) => line.includes(text))
    const fault = at < 0 ? undefined : planned.splice(at, 1)[0]?.fault
    if (typeof fault === "object" && "status" in fault) return void res.writeHead(fault.status, fault.headers).end()
    pass(req, res, port(), fault)
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    keys,
    forget: () => void planned.splice(0),
    next: (text, ...faults) => void planned.push(...faults.map((fault) => ({ text, fault }))),
    close: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

function pass(req: IncomingMessage, res: ServerResponse, port: number, fault: Fault | undefined): void {
  const { method, url: path, headers } = req
  const passed = request({ host: "127.0.0.1", port, method, path, headers }, (answer) => {
    if (fault === "lose the response") return void answer.resume().once("end", () => res.destroy())
    res.writeHead(answer.statusCode ?? 502, answer.headers)
    res.flushHeaders()
    let left = typeof fault === "object" && "cutAfter" in fault ? fault.cutAfter : Number.POSITIVE_INFINITY
    answer.on("data", (piece: Buffer) => {
      res.write(piece.subarray(0, left))
      left -= piece.length
      if (left <= 0) setImmediate(() => res.destroy())
    })
    answer.once("end", () => res.end()).once("error", () => res.destroy())
  })
  passed.once("error", () => res.destroy())
  res.once("close", () => passed.destroy())
  req.pipe(passed)
}
