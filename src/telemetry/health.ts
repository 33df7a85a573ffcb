/** One reason why the process may be unfit. Returns nothing when all is well, else what is wrong (no secrets). */
export type HealthCheck = () => string | undefined

export interface HealthReport {
  healthy: boolean
  /** Each check's name with its fault, in the order of registration. */
  checks: { name: string; fault: string | undefined }[]
}

/**
 * What `/livez` and `/readyz` say. Live means: a restart would not help. Ready means: send requests here. Checks
 * must be cheap: they are asked with each probe, and never fail because another service is away for a moment
 * (all replicas would be taken out at once).
 */
export class Health {
  readonly #checks = { live: new Map<string, HealthCheck>(), ready: new Map<string, HealthCheck>() }
  #draining = false

  addLiveCheck(name: string, check: HealthCheck): void {
    this.#checks.live.set(name, check)
  }

  addReadyCheck(name: string, check: HealthCheck): void {
    this.#checks.ready.set(name, check)
  }

  /** From now on not ready: the process is about to end, load balancers shall look elsewhere. */
  drain(): void {
    this.#draining = true
  }

  live(): HealthReport {
    return report(this.#checks.live)
  }

  ready(): HealthReport {
    const { checks } = report(this.#checks.ready)
    checks.push({ name: "shutdown", fault: this.#draining ? "the process is ending" : undefined })
    return { checks, healthy: checks.every(({ fault }) => fault === undefined) }
  }
}

function report(registered: ReadonlyMap<string, HealthCheck>): HealthReport {
  const checks = [...registered].map(([name, check]) => ({ name, fault: check() }))
  return { checks, healthy: checks.every(({ fault }) => fault === undefined) }
}
