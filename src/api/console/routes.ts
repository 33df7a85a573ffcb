import { readdirSync } from "node:fs"
import { join } from "node:path"
import { type RequestHandler, Router } from "express"
import { noteRoute } from "../../core/telemetry/http.ts"
import { allowNoOther } from "../http/mount.ts"
import { notFound } from "../http/problem.ts"
import { staticFile } from "../http/static-file.ts"
import { ASSETS, CONSOLE_PATH, SIGN_IN_PATH } from "./paths.ts"
import { type ConsoleSignInOptions, signInRouter } from "./sign-in.ts"

export interface ConsoleOptions {
  /** Folder that `scripts/console.ts` has written: `index.html`, and `assets/`. */
  folder: string
  /** Issuer that the page may call for a sign-in. */
  issuer?: string | undefined
  /** Exchange of codes by the façade. Absent: the page calls the issuer. */
  signIn?: ConsoleSignInOptions | undefined
}

/**
 * Returns the router of the web console. Its pages are one program in the browser, so all of them are `index.html`.
 * They need no authentication, because they have no data of a project. @throws Error if the folder has no console
 */
export function consoleRouter({ folder, issuer, signIn }: ConsoleOptions): Router {
  const router = Router({ caseSensitive: true, strict: true })
  router.use((_req, res, next) => {
    noteRoute(res, CONSOLE_PATH)
    next()
  })
  if (signIn !== undefined) router.use(SIGN_IN_PATH, signInRouter(signIn))
  const put = (path: string, handle: RequestHandler): void =>
    allowNoOther(router.route(path).get(handle), ["GET", "HEAD"])
  for (const name of readdirSync(join(folder, ASSETS))) {
    put(`/${ASSETS}/${name}`, staticFile(join(folder, ASSETS, name), "immutable"))
  }
  router.all(`/${ASSETS}/*name`, () => {
    throw notFound("This file of the console does not exist: reload the page, since Berth may have been upgraded.")
  })
  const index = staticFile(join(folder, "index.html"))
  const policy = contentSecurityPolicy(signIn === undefined ? issuer : undefined)
  const page: RequestHandler = (req, res, next) => {
    // The links of the page are relative to the folder.
    if (req.originalUrl === CONSOLE_PATH) return res.redirect(`${CONSOLE_PATH}/`)
    res.set("Content-Security-Policy", policy)
    return index(req, res, next)
  }
  put("/{*page}", page)
  return router
}

/** Returns the policy of the pages. Trusted types: no text of a user can become a script. */
function contentSecurityPolicy(issuer: string | undefined): string {
  const reachable = ["'self'", ...(issuer === undefined ? [] : [new URL(issuer).origin])]
  return [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    `connect-src ${reachable.join(" ")}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
  ].join("; ")
}
