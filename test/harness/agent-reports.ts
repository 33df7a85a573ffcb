import type { Clock } from "../../src/core/apis/clock.ts"
import { timestamp } from "../../src/core/apis/clock.ts"
import { type AgentStatus, type FinishCause, type FinishReason, isOver } from "../../src/core/apis/launch.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { isConflict } from "../../src/core/kube/errors.ts"
import { LAUNCHES } from "../../src/core/resources.ts"

export interface AgentReportsOptions {
  client: KubeClient
  /** Launches of one namespace. */
  namespace: string
  clock: Clock
}

/** Writes agents' reports like the gateway does: on the version that it read, and only for a current Launch. */
export class AgentReports {
  readonly #options: AgentReportsOptions

  constructor(options: AgentReportsOptions) {
    this.#options = options
  }

  /** Writes an agent's report. Writes nothing for a Launch that is not current. */
  async report(name: string, change: (before: AgentStatus | undefined) => Partial<AgentStatus>): Promise<void> {
    const { client, namespace } = this.#options
    const ref = { namespace, name }
    const launch = await client.get(LAUNCHES, ref)
    if (isOver(launch) || launch.spec.ended === true) return
    const agent = launch.status?.agent
    const base = agent ?? {
      signingKey: "{}",
      encryptionKey: "{}",
      sequence: 0,
      retryCount: 0,
      registrationTime: this.#now(),
    }
    const next = { ...base, sequence: base.sequence + 1, lastHeartbeatTime: this.#now(), ...change(agent) }
    const merge = { metadata: { resourceVersion: launch.metadata.resourceVersion }, status: { agent: next } }
    try {
      await client.patchStatus(LAUNCHES, ref, { merge }, { fieldManager: "berth-gateway" })
    } catch (error) {
      if (!isConflict(error)) throw error
      await this.report(name, change)
    }
  }

  register(launch: string): Promise<void> {
    return this.report(launch, () => ({}))
  }

  start(launch: string): Promise<void> {
    return this.report(launch, () => ({ startTime: this.#now() }))
  }

  finish(launch: string, reason: FinishReason, exitCode = 0, cause?: FinishCause): Promise<void> {
    return this.report(launch, () => ({ finish: { reason, exitCode, ...(cause && { cause }), time: this.#now() } }))
  }

  /** Reports that nothing of the job is left on the VM, which waits for another one. */
  idle(launch: string): Promise<void> {
    return this.report(launch, () => ({ idleTime: this.#now() }))
  }

  #now(): string {
    return timestamp(this.#options.clock.now())
  }
}
