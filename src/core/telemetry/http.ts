import type { RequestHandler, Response } from "express"
import { Counter, Histogram, type Registry } from "prom-client"

/** Records the route of a request for `measureRequests`: express forgets the mount path of a router once it fails. */
export function noteRoute(res: Response, route: string): void {
  res.locals["route"] = route
}

const AUTH_FAILURES: Readonly<Record<number, string>> = { 401: "unauthenticated", 403: "forbidden" }

const DURATION = "http_request_duration_seconds"

/** Returns the observer of answers that do not pass `measureRequests`, which must have been called before. */
export function answerObserver(
  registry: Registry,
  labels: { method: string; route: string; status: string },
): (seconds: number) => void {
  const duration = registry.getSingleMetric(DURATION)
  if (!(duration instanceof Histogram)) throw new Error(`the registry has no histogram ${DURATION}`)
  const answers = duration.labels(labels)
  return (seconds) => answers.observe(seconds)
}

/**
 * Measures the duration of answers by method, route and status, and counts rejected requests. The route is the pattern,
 * so that there are few labels.
 */
export function measureRequests(registry: Registry): RequestHandler {
  const duration = new Histogram({
    name: DURATION,
    help: "Time from a request's arrival until its answer was sent.",
    labelNames: ["method", "route", "status"],
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
    registers: [registry],
  })
  const refusals = new Counter({
    name: "berth_auth_failures_total",
    help: "Requests without valid credentials (unauthenticated) or without the right (forbidden).",
    labelNames: ["reason"],
    registers: [registry],
  })
  for (const reason of Object.values(AUTH_FAILURES)) refusals.inc({ reason }, 0)
  return (req, res, next) => {
    const stop = duration.startTimer()
    res.once("close", () => {
      const path: unknown = req.route?.path
      const matched = typeof path === "string" ? req.baseUrl + path : "none"
      const route = String(res.locals["route"] ?? matched)
      const failure = AUTH_FAILURES[res.statusCode]
      if (failure !== undefined) refusals.inc({ reason: failure })
      stop({ method: req.method, route, status: String(res.statusCode) })
    })
    next()
  }
}
