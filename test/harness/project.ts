import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, expect } from "vitest"
import { installBase } from "../../dev/base.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { ConnectionSpec, StoredConnection } from "../../src/core/apis/connection.ts"
import type { CredentialFields } from "../../src/core/apis/credentials.ts"
import type { JobSpec, StoredJob } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { ensureSealingKeys } from "../../src/core/identity/sealing-keys.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { CONNECTIONS, JOBS, LAUNCHES, PROJECTS } from "../../src/core/resources.ts"
import { sealCredentials } from "../../src/core/sealing/credentials.ts"
import { Sealer } from "../../src/core/sealing/envelope.ts"
import { KeyringEncryption } from "../../src/core/sealing/keys.ts"
import { kubeConfig, testNamespace } from "../control-plane.ts"
import { confirmedProject } from "./confirmed-project.ts"
import { eventually } from "./eventually.ts"
import { clientOf, makeSystemNamespace, rightsArrive } from "./machine-users.ts"
import { type Market, Programs } from "./programs.ts"
import { simMarket } from "./sim-market.ts"
import { SimProvider } from "./sim-provider.ts"

/**
 * A project in an installation of its own, beside others on the shared API server. Its programs run in this process and
 * have the rights of manifests/base. Connections of type aws open simulated accounts.
 */
export class ProjectHarness {
  readonly systemNamespace: string
  readonly namespace: string
  readonly project = `p-${randomBytes(4).toString("hex")}`
  readonly admin = new KubeClient(kubeConfig())
  readonly accounts = new SimProvider(systemClock)
  readonly sealer = new Sealer(new KeyringEncryption(() => ensureSealingKeys(this.admin, this.systemNamespace)))
  readonly programs: Programs

  /**
   * Call it where `beforeAll` may be called, after the `afterAll` of what the programs need.
   * @param market offers and providers; default: one offer, and the simulated accounts
   */
  constructor(name: string, market: Partial<Market> = {}) {
    this.systemNamespace = testNamespace(`${name}-system`)
    this.namespace = testNamespace(name)
    this.programs = new Programs({
      ...{ systemNamespace: this.systemNamespace, watchNamespace: this.namespace },
      ...{ clientOf, market: { ...simMarket(this.accounts), ...market } },
    })
    beforeAll(() => this.#open())
    afterAll(() => this.#close())
  }

  /** Creates a connection of type aws, sealed for the project or another one. */
  async createConnection(name: string, spec: ConnectionSpec): Promise<StoredConnection> {
    const { admin, namespace } = this
    return await admin.create(CONNECTIONS, { metadata: { name, namespace }, spec } as StoredConnection)
  }

  /** Returns the credentials of a connection of type aws, sealed for it. */
  seal(name: string, fields: CredentialFields): Promise<string> {
    return sealCredentials(this.sealer, { type: "aws", fields }, { project: this.project, name })
  }

  async submit(name: string, spec: Partial<JobSpec> = {}): Promise<StoredJob> {
    const { admin, namespace } = this
    return await admin.create(JOBS, { metadata: { name, namespace }, spec: { image: "busybox", ...spec } } as StoredJob)
  }

  job(name: string): Promise<StoredJob> {
    return this.admin.get(JOBS, { namespace: this.namespace, name })
  }

  launches(): Promise<StoredLaunch[]> {
    return this.admin.list(LAUNCHES, { namespace: this.systemNamespace }).then(({ items }) => items)
  }

  /** Returns the first Launch of a job, if it has one. */
  async launchOf(job: string): Promise<StoredLaunch | undefined> {
    return (await this.launches()).find(({ spec }) => spec.job.name === job)
  }

  /** Deletes all jobs; resolves when the operator has removed their finalizers. */
  async deleteJobs(): Promise<void> {
    const { admin, namespace } = this
    for (const { metadata } of (await admin.list(JOBS, { namespace })).items) await admin.delete(JOBS, metadata)
    await eventually(async () => expect((await admin.list(JOBS, { namespace })).items).toEqual([]))
  }

  async #open(): Promise<void> {
    const { admin, systemNamespace, project, namespace } = this
    await installBase(admin, AbortSignal.timeout(120_000))
    await makeSystemNamespace(admin, systemNamespace)
    await confirmedProject(admin, { name: project, organization: "o", namespace })
    await rightsArrive(systemNamespace)
  }

  async #close(): Promise<void> {
    const { admin } = this
    await this.deleteJobs()
    await this.programs.stop()
    for (const { metadata } of await this.launches()) await admin.delete(LAUNCHES, metadata)
    await admin.delete(PROJECTS, { name: this.project })
    await admin.close()
  }
}
