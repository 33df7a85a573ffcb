import { randomBytes } from "node:crypto"
import { afterAll, beforeAll } from "vitest"
import { installKinds } from "../../dev/install.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { NAMESPACES } from "../../src/core/kube/core.ts"
import { kubeConfig } from "../control-plane.ts"

/** Controllers that run in this process. */
interface Stoppable {
  stop(): Promise<void>
}

/** One namespace of the shared API server, and operators on demand. */
export abstract class NamespaceHarness<Operator extends Stoppable> {
  readonly namespace: string
  readonly client: KubeClient
  protected readonly operators = new Set<Operator>()
  #closed = false

  constructor(client: KubeClient, prefix: string) {
    this.client = client
    this.namespace = `${prefix}-${randomBytes(4).toString("hex")}`
  }

  async open(): Promise<this> {
    await this.client.create(NAMESPACES, { metadata: { name: this.namespace } })
    return this
  }

  /** Stops its operators. Its namespace stays as long as the control plane does. A second call does nothing. */
  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    for (const operator of this.operators) await operator.stop()
  }

  /** Registers a started operator, so that `close` stops it. */
  protected started(operator: Operator): Operator {
    const { stop } = operator
    operator.stop = async () => {
      await stop()
      this.operators.delete(operator)
    }
    this.operators.add(operator)
    return operator
  }
}

/** Returns a client of the shared API server with the kinds installed. Call it where beforeAll is allowed. */
export function sharedClient(): KubeClient {
  const client = new KubeClient(kubeConfig())
  beforeAll(() => installKinds(client, AbortSignal.timeout(60_000)))
  afterAll(() => client.close())
  return client
}

/** Returns a function that creates harnesses, and closes them after the suite. */
export function harnessesOf<H extends { open(): Promise<H>; close(): Promise<void> }>(
  create: (client: KubeClient) => H,
): () => Promise<H> {
  const client = sharedClient()
  const open: H[] = []
  afterAll(() => Promise.all(open.map((harness) => harness.close())))
  return async () => {
    const harness = await create(client).open()
    open.push(harness)
    return harness
  }
}
