import { type IRoute, type Request, type RequestHandler, Router } from "express"
import Type, { type Static } from "typebox"
import { ALLOWED, SENSITIVE } from "../../core/apis/schema.ts"
import { type CodeExchange, CodeRejected } from "../../core/identity/code-exchange.ts"
import { IssuerUnavailable } from "../../core/identity/oidc.ts"
import { bodyReader, parseBody } from "../http/body.ts"
import { checked } from "../http/checked.ts"
import { allowNoOther } from "../http/mount.ts"
import { badRequest, invalidRequest, Problem, unavailable } from "../http/problem.ts"
import { FailureLimit } from "../http/rate-limits.ts"
import { type AskingConsole, redirectFault } from "./redirect.ts"

export interface ConsoleSignInOptions extends Pick<AskingConsole, "baseDomain" | "hasProjectHosts"> {
  codeExchange: Pick<CodeExchange, "facts" | "exchange">
  /** Largest number of failures of one address. 0: no limit. */
  failuresPerMinute: number
}

/** Body of POST /console/sign-in/token. The names are those of RFC 6749 and RFC 7636. */
export const GivenCodeSchema = Type.Object(
  {
    code: Type.String({ minLength: 1, maxLength: 8192 }),
    code_verifier: Type.String({
      pattern: "^[A-Za-z0-9._~-]{43,128}$",
      [ALLOWED]: "43 to 128 letters, digits, -, ., _ and ~ (RFC 7636)",
      [SENSITIVE]: true,
    }),
    redirect_uri: Type.String({ maxLength: 2048 }),
  },
  { additionalProperties: false },
)

/**
 * Returns the router by which the console signs a person in at an issuer that it can't ask itself. Nothing is stored: the
 * browser keeps the verifier, and each request has all that it needs.
 */
export function signInRouter({ codeExchange, failuresPerMinute, ...domain }: ConsoleSignInOptions): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const failures = new FailureLimit({
    perMinute: failuresPerMinute,
    statuses: [400, 503],
    failures: "sign-ins that failed",
  })
  const readBody = bodyReader({ principalOf: ({ ip = "" }) => ({ id: ip }), countBody: async () => undefined })
  const facts: RequestHandler = async (_req, res) => {
    res.set("Cache-Control", "no-cache").json(await codeExchange.facts().catch(explain))
  }
  const token: RequestHandler = async (req, res) => {
    // The issuer is not asked for an address that fails again and again.
    if (await failures.areTooMany(req)) throw badRequest("Too many sign-ins from this address failed.")
    const { code, code_verifier: verifier, redirect_uri: redirectUri } = givenCode(req, domain)
    const tokens = await codeExchange.exchange({ code, verifier, redirectUri }).catch(explain)
    res.set("Cache-Control", "no-store").json(tokens)
  }
  const at = (path: string): IRoute => router.route(path)
  allowNoOther(at("/issuer").get(facts), ["GET", "HEAD"])
  allowNoOther(at("/token").post(readBody, failures.counting(token)), ["POST"])
  return router
}

/** @throws Problem 400 */
function givenCode(req: Request, domain: Pick<AskingConsole, "baseDomain" | "hasProjectHosts">) {
  const context = { schema: GivenCodeSchema, rules: [], context: undefined }
  const found = checked<Static<typeof GivenCodeSchema>>(parseBody(req), context)
  if ("errors" in found) throw invalidRequest(found.errors, "The sign-in")
  const asking = { ...domain, host: req.host, origin: req.get("Origin") }
  const fault = redirectFault(found.body.redirect_uri, asking)
  if (fault !== undefined)
    throw invalidRequest([{ pointer: "/redirect_uri", detail: `redirect_uri ${fault}` }], "The sign-in")
  return found.body
}

/** @throws Problem 400 or 503 */
function explain(error: unknown): never {
  if (error instanceof CodeRejected && !error.isOfClient) {
    const detail = `${error.message}. Sign in again.`
    throw new Problem({ type: "sign-in-rejected", status: 400, detail })
  }
  if (error instanceof CodeRejected)
    throw unavailable(`${error.message}: an administrator must correct the console's OAuth client.`, 60, error)
  if (error instanceof IssuerUnavailable)
    throw unavailable(
      "The issuer of the sign-in can't be used now: try again. The server's log has the cause.",
      5,
      error,
    )
  throw error
}
