import { text } from "node:stream/consumers"
import type { RequestHandler } from "express"
import type { Launch, StoredLaunch } from "../../src/core/apis/launch.ts"
import { parseUserData, sealBootConfig, verifyMessage } from "../../src/core/protocol/messages.ts"
import type { NextRequest, NextResponse } from "../../src/core/protocol/protocol.ts"
import { LAUNCHES } from "../../src/core/resources.ts"
import { until } from "../harness/eventually.ts"
import type { LaunchFixture } from "../harness/launches.ts"

/** Part of a Launch whose VM waits for another job after it. */
export function reusable(idleSeconds = 60): { reuse: { idleSeconds: number } } {
  return { reuse: { idleSeconds } }
}

/**
 * Gives VMs of tests another Launch, in place of the operator. It answers `next` by the protocol, to the agent whose keys
 * the Launch is bound to, and forwards all else.
 */
export class Handover {
  /** Messages of VMs, in order. */
  readonly asked: NextRequest[] = []
  /** Called with each message before its answer. */
  onAsk: (request: NextRequest) => void | Promise<void> = () => undefined
  /** Answer to a VM without a successor. Default: it is held until there is one, or the VM leaves. */
  refusal: NextResponse | undefined
  readonly #fixture: () => LaunchFixture
  readonly #userData: (launch: StoredLaunch) => string
  readonly #successors = new Map<string, StoredLaunch>()

  constructor(fixture: () => LaunchFixture, userData: (launch: StoredLaunch) => string) {
    this.#fixture = fixture
    this.#userData = userData
  }

  readonly handler: RequestHandler = (req, res, next) => {
    if (!req.path.endsWith("/next")) return next()
    void this.#handle(req, res).catch(next)
  }

  /** Creates a Launch that takes over the VM of another one. It gets the VM once that one asks. */
  async successor(
    holder: StoredLaunch,
    run: Parameters<LaunchFixture["launch"]>[0],
    spec: Partial<Launch["spec"]> = {},
  ) {
    const { name } = holder.metadata
    const root = holder.spec.root ?? name
    const { offer } = holder.spec
    const launch = await this.#fixture().launch(run, { offer, ...spec, takesOver: name, root })
    this.#successors.set(name, launch)
    return launch
  }

  /** Resolves when the VM of this Launch has asked for another job. */
  async idle({ metadata: { name } }: StoredLaunch): Promise<void> {
    await until("the VM is idle", () => this.asked.some((request) => request.launch === name))
  }

  /** Returns the messages of this Launch's VM, without its name. */
  of({ metadata: { name } }: StoredLaunch): Omit<NextRequest, "launch">[] {
    return this.asked.filter((request) => request.launch === name).map(({ launch: _, ...about }) => about)
  }

  async #handle(req: Parameters<RequestHandler>[0], res: Parameters<RequestHandler>[1]): Promise<void> {
    const name = req.path.split("/").at(-2) ?? ""
    const launch = await this.#fixture().client.get(LAUNCHES, { namespace: this.#fixture().namespace, name })
    const agent = launch.status?.agent
    if (agent?.finish === undefined) throw new Error("the VM asks for a job before the gateway has its finish")
    const request = (await verifyMessage("next", await text(req), agent.signingKey)) as NextRequest
    this.asked.push(request)
    await this.onAsk(request)
    const leaves = request.isLeaving === true || request.unfit !== undefined
    const isDone = (): boolean => this.#successors.has(name) || leaves || this.refusal !== undefined
    await until("there is an answer", () => isDone() || req.socket.destroyed)
    res.json(await this.#answer(name, agent.encryptionKey, request))
  }

  async #answer(name: string, key: string, { unfit }: NextRequest): Promise<NextResponse> {
    const successor = this.#successors.get(name)
    if (successor === undefined || unfit !== undefined) return this.refusal ?? { isAwaited: false }
    const { namespace, client } = this.#fixture()
    const status = { phase: "handedOver", handedTo: successor.metadata.name }
    await client.patchStatus(LAUNCHES, { namespace, name }, { merge: { status } })
    const config = parseUserData(this.#userData(successor))
    return { next: await sealBootConfig(config, key), isAwaited: true }
  }
}
