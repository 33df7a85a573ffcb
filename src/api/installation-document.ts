import { Router } from "express"
import { PROJECT_PATH } from "./addresses.ts"
import { allowNoOther } from "./http/mount.ts"

const DOCUMENT_PATH: string = "/.well-known/berth"

/** Seconds for which clients may cache the document. */
const MAX_AGE_SECONDS = 300

/** Issuer at which people sign in, and the client of command lines there. */
export interface SignIn {
  issuer: string
  audience: string
  clientId: string
  /** Client of the web console. Default: the one of command lines. */
  console?: ConsoleClient | undefined
}

/** Client of the web console at the issuer. */
export interface ConsoleClient {
  clientId: string
  /** Audience of its tokens. */
  audience: string
  /** Scopes that it requests, separated by spaces. */
  scopes: string
}

/** Scopes that give a token with the person's address. */
export const DEFAULT_SCOPES = "openid email"

export interface InstallationFacts {
  version: string
  /** Undefined: no user can sign in. */
  signIn?: SignIn | undefined
  /** Undefined if no host names a project. */
  baseDomain?: string | undefined
  defaultProject?: string | undefined
  /** True if the façade exchanges the codes of the console's sign-ins. */
  exchangesCodes: boolean
  /** Undefined if browsers reach no ports of jobs. */
  sessionDomain?: string | undefined
}

/**
 * Serves `/.well-known/berth`, which shows clients how to sign in and how to address projects. It is public, and contains
 * no secret.
 */
export function installationRouter(facts: InstallationFacts): Router {
  const { version, signIn, baseDomain, defaultProject, sessionDomain } = facts
  const document = {
    version,
    issuer: signIn?.issuer ?? null,
    client_id: signIn?.clientId ?? null,
    audience: signIn?.audience ?? null,
    console: signIn === undefined ? null : consoleClient(signIn, facts),
    project_host: baseDomain === undefined ? null : `{project}.${baseDomain}`,
    project_path: PROJECT_PATH.replace(":project", "{project}"),
    default_project: defaultProject ?? null,
    session_domain: sessionDomain ?? null,
  }
  const router = Router({ caseSensitive: true })
  const route = router.route(DOCUMENT_PATH)
  route.get((_req, res) => {
    res.set("Cache-Control", `public, max-age=${MAX_AGE_SECONDS}`).json(document)
  })
  allowNoOther(route, ["GET", "HEAD"])
  return router
}

function consoleClient(signIn: SignIn, { exchangesCodes }: Pick<InstallationFacts, "exchangesCodes">): object {
  const { clientId, audience, scopes } = signIn.console ?? { ...signIn, scopes: DEFAULT_SCOPES }
  return { client_id: clientId, audience, scope: scopes, exchange: exchangesCodes ? "facade" : "browser" }
}
