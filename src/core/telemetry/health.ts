/** A check of one cause for which the process may be unhealthy. Returns the fault, without secrets, or nothing. */
export type HealthCheck = () => string | undefined

export interface HealthReport {
  healthy: boolean
  /** Names and faults of the checks, in the order of registration. */
  checks: { name: string; fault: string | undefined }[]
}

/**
 * State for `/livez` and `/readyz`. Live means that a restart would not help. Ready means that the process can take
 * requests. Checks must be cheap, because each probe runs them. They must not fail while another service is briefly
 * unavailable: all replicas would be out of service at once.
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

  /** Makes the process not ready because it is about to end, so that load balancers use other replicas. */
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
