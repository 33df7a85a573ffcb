import { type RequestHandler, Router } from "express"
import type { Registry } from "prom-client"
import type { Health, HealthReport } from "./health.ts"

/**
 * Returns the routes for the platform: `/livez`, `/readyz`, `/healthz` (Kubernetes' older name of `/livez`), each with
 * `?verbose`. With a registry it also serves `/metrics`. Pass no registry if tenants can reach the port.
 */
export function operationsRouter(health: Health, metrics?: Registry): Router {
  const router = Router({ caseSensitive: true })
  const live = probe(() => health.live())
  router.get("/livez", live)
  router.get("/healthz", live)
  router.get(
    "/readyz",
    probe(() => health.ready()),
  )
  if (metrics !== undefined) router.get("/metrics", exposition(metrics))
  return router
}

function probe(check: () => HealthReport): RequestHandler {
  return (req, res) => {
    const { healthy, checks } = check()
    const verbose = !healthy || req.query["verbose"] !== undefined
    const lines = checks.map(({ name, fault }) => (fault === undefined ? `[+] ${name}: ok` : `[-] ${name}: ${fault}`))
    if (verbose) lines.push(healthy ? "ok" : "failed")
    res
      .status(healthy ? 200 : 503)
      .set("Cache-Control", "no-store")
      .type("text/plain")
      .send(`${verbose ? lines.join("\n") : "ok"}\n`)
  }
}

function exposition(metrics: Registry): RequestHandler {
  return async (_req, res) => {
    res.set("Content-Type", metrics.contentType).send(await metrics.metrics())
  }
}
