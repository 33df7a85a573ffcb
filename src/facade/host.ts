import type { RequestHandler } from "express"
import { badRequest } from "../http/problem.ts"

/**
 * Rejects requests without a host, or with several: the host names the project. Node.js leaves the Host header of
 * HTTP/1.0 to us, and drops all but the first of several. @throws Problem 400
 */
export const requireHost: RequestHandler = (req, _res, next) => {
  const hosts = req.rawHeaders.filter((name, index) => index % 2 === 0 && name.toLowerCase() === "host")
  if (hosts.length > 1) throw badRequest(`The request has ${hosts.length} Host headers: send one.`)
  if (!req.hostname) throw badRequest("The request names no host: send it in the Host header.")
  next()
}
