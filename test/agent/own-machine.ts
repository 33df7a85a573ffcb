import { randomUUID } from "node:crypto"
import type { RequestHandler } from "express"
import { timestamp } from "../../src/core/apis/clock.ts"
import type { Run } from "../../src/core/apis/job.ts"
import type { Launch, StoredLaunch } from "../../src/core/apis/launch.ts"
import type { Host, MachineLaunch, StoredMachine } from "../../src/core/apis/machine.ts"
import { joinToken } from "../../src/core/protocol/machines.ts"
import { MACHINES } from "../../src/core/resources.ts"
import { until } from "../harness/eventually.ts"
import { BOOTSTRAP_KEY } from "../harness/gateway.ts"
import type { LaunchFixture } from "../harness/launches.ts"

/** Machine that a host may join as. It is given to Launches as the operator does that. */
export class OwnMachine {
  readonly name = `machine-${randomUUID().slice(0, 8)}`
  /** Number of answers to joins that get lost on the way. */
  lostAnswers = 0
  readonly #fixture: LaunchFixture
  #uid = ""
  #number = 0
  #beats = 0

  private constructor(fixture: LaunchFixture) {
    this.#fixture = fixture
  }

  static async create(fixture: LaunchFixture): Promise<OwnMachine> {
    const machine = new OwnMachine(fixture)
    const object = { metadata: machine.#ref, spec: { joinNumber: 0 } }
    machine.#uid = (await fixture.client.create(MACHINES, object as StoredMachine)).metadata.uid
    return machine
  }

  /** Issues a join token, which makes earlier ones invalid. */
  async token({ expiresIn = 3600 } = {}): Promise<string> {
    const number = ++this.#number
    await this.#fixture.client.patch(MACHINES, this.#ref, { merge: { spec: { joinNumber: number } } })
    const expires = Math.floor(Date.now() / 1000) + expiresIn
    return joinToken(BOOTSTRAP_KEY, { ...this.#ref, uid: this.#uid, number, expires })
  }

  /** Creates a Launch, and gives the machine to it. */
  async launch(run: Partial<Run>, spec: Partial<Launch["spec"]> = {}): Promise<StoredLaunch> {
    const offer = { cloud: "own", region: "own", instanceType: this.name, cpu: 1, memoryGib: 2 } as const
    const price = { hourlyPriceUsd: 0, minimumBilledSeconds: 0 }
    const launch = await this.#fixture.launch(run, {
      offer: { ...offer, ...price, architecture: "amd64", provisioning: "onDemand" },
      ...spec,
    })
    const { name } = launch.metadata
    const { namespace } = this.#fixture
    const createTime = timestamp(new Date())
    const about = { installation: "test", namespace, region: "own", specDigest: "test" }
    await this.#write({ name, ...about, createTime, endTime: null })
    return launch
  }

  /** Asks for the end of the run that has the machine. */
  async stop(): Promise<void> {
    await this.#write({ endTime: timestamp(new Date()) })
  }

  async remove(): Promise<void> {
    await this.#fixture.client.delete(MACHINES, this.#ref)
  }

  /** Returns what the gateway knows of the host. */
  async host(): Promise<Host | undefined> {
    return (await this.#fixture.client.get(MACHINES, this.#ref)).status?.host
  }

  /** Resolves when a host has sent another heartbeat. */
  async waits(): Promise<void> {
    const before = this.#beats
    await until(`a host of ${this.name} waits`, () => this.#beats > before)
  }

  /** Resolves when the host has said that it has the run of a Launch. */
  async running({ metadata: { name } }: StoredLaunch): Promise<void> {
    await until(`${name} runs`, async () => (await this.host())?.running === name)
  }

  /** Resolves when the host has said that nothing of a Launch is left. */
  async freed({ metadata: { name } }: StoredLaunch): Promise<void> {
    const isFreed = async () => {
      const { freed, running } = (await this.host()) ?? {}
      return freed === name && running === undefined
    }
    await until(`${name} is freed`, isFreed)
  }

  readonly handler: RequestHandler = (req, res, next) => {
    if (!req.path.includes(`/${this.name}/`)) return next()
    if (req.path.endsWith("/beat")) this.#beats++
    if (req.path.endsWith("/join") && this.lostAnswers-- > 0) {
      res.end = () => {
        req.socket.destroy()
        return res
      }
    }
    next()
  }

  get #ref(): { namespace: string; name: string } {
    return { namespace: this.#fixture.namespace, name: this.name }
  }

  async #write(launch: { [Field in keyof MachineLaunch]?: MachineLaunch[Field] | null }): Promise<void> {
    await this.#fixture.client.patchStatus(MACHINES, this.#ref, { merge: { status: { launch } } })
  }
}
