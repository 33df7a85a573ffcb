import { once } from "node:events"
import { type IncomingMessage, request, type ServerResponse } from "node:http"
import { createServer as createTlsServer } from "node:https"
import { type CertificateAuthority, newCertificateAuthority } from "../../dev/controlplane/certificates.ts"

/** Answers a request to one host. */
export type Answer = (req: IncomingMessage, res: ServerResponse) => void

/** An HTTPS server for many hosts, with a private authority. */
export interface Front {
  authority: CertificateAuthority
  /** `host path` of each request. */
  requests: string[]
  close(): Promise<void>
}

/** Serves at the port 443 of an address of this machine. A host without an answer rejects the credentials of all. */
export async function startFront(address: string, hosts: Record<string, Answer | undefined>): Promise<Front> {
  const authority = newCertificateAuthority("a company's own")
  const { certificate: cert, key } = authority.issue({ commonName: "front", hosts: Object.keys(hosts) })
  const requests: string[] = []
  const server = createTlsServer({ cert, key }, (req, res) => {
    const host = req.headers.host ?? ""
    requests.push(`${host} ${req.url?.split("?")[0]}`)
    const answer = hosts[host]
    if (answer !== undefined) return answer(req, res)
    res.writeHead(401, { "content-type": "application/json" }).end('{"error":"invalid_client"}')
  })
  server.listen(443, address)
  await once(server, "listening")
  return {
    authority,
    requests,
    close: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** Returns an answer by another server of this machine. @param host name by which that one is asked; default: the client's */
export function forwarding(url: () => string, host?: string): Answer {
  return (req, res) => {
    const headers = { ...req.headers, ...(host !== undefined && { host }) }
    const options = { method: req.method ?? "GET", headers }
    const target = request(new URL(req.url ?? "/", url()), options, (answer) => {
      res.writeHead(answer.statusCode ?? 502, answer.headers)
      answer.pipe(res)
    })
    target.on("error", () => res.writeHead(502).end())
    req.pipe(target)
  }
}
