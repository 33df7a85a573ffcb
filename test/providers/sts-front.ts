import { once } from "node:events"
import { createServer, type IncomingMessage } from "node:http"
import type { AddressInfo } from "node:net"
import { text } from "node:stream/consumers"
import { type Trust, verifyAsCloud } from "./trust.ts"

/** Trust policy of an IAM role: for identity tokens, or for an external id. */
export type RoleTrust = Trust | { externalId: string }

/**
 * A proxy before moto that checks what AWS checks and moto does not: the token and the trust policy of
 * AssumeRoleWithWebIdentity, and the external id of AssumeRole
 * (https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html).
 */
export interface StsFront {
  url: string
  /** Trust policies by the role's ARN. Other roles trust no token. */
  roles: Map<string, RoleTrust>
  /** Actions of STS that were answered. */
  actions: string[]
  stop(): Promise<void>
}

export async function startStsFront(motoUrl: string): Promise<StsFront> {
  const roles: StsFront["roles"] = new Map()
  const actions: string[] = []
  const server = createServer(async (req, res) => {
    const body = await text(req)
    const form = new URLSearchParams(body)
    const action = form.get("Action") ?? ""
    if (action.startsWith("AssumeRole")) actions.push(action)
    const refusal = await refusalOf(form, roles)
    if (refusal !== undefined) {
      res.writeHead(refusal.status, { "content-type": "text/xml" })
      const error = `<Type>Sender</Type><Code>${refusal.code}</Code><Message>${refusal.message}</Message>`
      res.end(
        `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error>${error}</Error></ErrorResponse>`,
      )
      return
    }
    const answer = await forward(motoUrl, req, body)
    res.writeHead(answer.status, { "content-type": answer.headers.get("content-type") ?? "" })
    res.end(await answer.text())
  })
  server.listen(0, "127.0.0.1")
  await once(server, "listening")
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    roles,
    actions,
    stop: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, "close")
    },
  }
}

interface Refusal {
  status: number
  code: string
  message: string
}

async function refusalOf(form: URLSearchParams, roles: StsFront["roles"]): Promise<Refusal | undefined> {
  const action = form.get("Action") ?? ""
  if (!action.startsWith("AssumeRole")) return undefined
  const role = form.get("RoleArn") ?? ""
  const trust = roles.get(role)
  const denied = { status: 403, code: "AccessDenied", message: `Not authorized to perform sts:${action}` }
  if (trust === undefined) return denied
  if (action === "AssumeRole")
    return "externalId" in trust && trust.externalId === form.get("ExternalId") ? undefined : denied
  if ("externalId" in trust) return denied
  try {
    await verifyAsCloud(form.get("WebIdentityToken") ?? "", trust)
    return undefined
  } catch (error) {
    if ((error as { claim?: string }).claim === "sub") return denied
    return { status: 400, code: "InvalidIdentityToken", message: (error as Error).message }
  }
}

async function forward(motoUrl: string, req: IncomingMessage, body: string): Promise<Response> {
  const kept = Object.entries(req.headers).filter(([name]) => !["host", "connection", "content-length"].includes(name))
  return await fetch(`${motoUrl}${req.url}`, {
    method: req.method ?? "GET",
    headers: kept.map(([name, value]) => [name, String(value)] as [string, string]),
    ...(body !== "" && { body }),
  })
}
