import { randomUUID } from "node:crypto"
import { text } from "node:stream/consumers"
import type { Request, RequestHandler, Response } from "express"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import {
  type BeatRequest,
  type BeatResponse,
  type JoinRequest,
  joinToken,
  machineToken,
  verifyJoinToken,
} from "../../src/core/protocol/machines.ts"
import { parseUserData, sealBootConfig, unverifiedMessage, verifyMessage } from "../../src/core/protocol/messages.ts"
import { PROBLEM_TYPE_BASE, REFUSALS, type Refusal } from "../../src/core/protocol/protocol.ts"
import { until } from "../harness/eventually.ts"
import { BOOTSTRAP_KEY } from "../harness/gateway.ts"

/** Time for which an answer waits for a job, milliseconds. */
const HELD_MS = 2000

/**
 * One machine of its own, in place of gateway and operator. It answers `join` and `beat` by the protocol, and leaves all
 * else to the gateway.
 */
export class OwnMachine {
  /** Messages of its host, in order. */
  readonly beats: BeatRequest[] = []
  readonly name = `machine-${randomUUID().slice(0, 8)}`
  leaseSeconds = 900
  joined: JoinRequest | undefined
  /** Answers to joins that are lost on the way. */
  lostAnswers = 0
  /** Called with each heartbeat before its answer. */
  onBeat: (beat: BeatRequest) => void | Promise<void> = () => undefined
  refusal: Refusal | undefined
  readonly #uid = randomUUID()
  readonly #userData: (launch: StoredLaunch) => string
  #number = 0
  #usedNumber = 0
  #launch: StoredLaunch | undefined
  #stop: string | undefined

  constructor(userData: (launch: StoredLaunch) => string) {
    this.#userData = userData
  }

  /** Issues a join token, which makes earlier ones invalid. */
  token({ expiresIn = 3600 } = {}): string {
    const expires = Math.floor(Date.now() / 1000) + expiresIn
    const claims = { namespace: "owners", name: this.name, uid: this.#uid, number: ++this.#number, expires }
    return joinToken(BOOTSTRAP_KEY, claims)
  }

  /** Gives the machine to a Launch. */
  assign(launch: StoredLaunch): void {
    this.#launch = launch
  }

  /** Asks for the end of a Launch's run. */
  stop({ metadata }: StoredLaunch): void {
    this.#stop = metadata.name
  }

  get last(): BeatRequest | undefined {
    return this.beats.at(-1)
  }

  /** Resolves when the host has said that nothing of a Launch is left. */
  async freed({ metadata: { name } }: StoredLaunch): Promise<void> {
    await until(`${name} is freed`, () => this.last?.freed === name)
  }

  /** Resolves when the host has said that it has the run of a Launch. */
  async running({ metadata: { name } }: StoredLaunch): Promise<void> {
    await until(`${name} runs`, () => this.last?.running === name)
  }

  readonly handler: RequestHandler = (req, res, next) => {
    if (!req.path.includes(`/machines/owners/${this.name}/`)) return next()
    const answer = req.path.endsWith("/join") ? this.#join(req, res) : this.#beat(req, res)
    void answer.catch(next)
  }

  async #join(req: Request, res: Response): Promise<void> {
    const claims = verifyJoinToken(BOOTSTRAP_KEY, bearer(req))
    if (claims?.uid !== this.#uid) return refuse(res, "agent-not-authentic")
    const jws = await text(req)
    const request = unverifiedMessage(jws) as JoinRequest
    await verifyMessage("join", jws, request.signingKey)
    const isRepeated = this.#usedNumber === claims.number && this.joined?.signingKey === request.signingKey
    if (claims.number !== this.#number || (this.#usedNumber >= claims.number && !isRepeated))
      return refuse(res, "join-token-used")
    if (claims.expires * 1000 < Date.now()) return refuse(res, "join-token-expired")
    this.#usedNumber = claims.number
    this.joined = request
    if (this.lostAnswers-- > 0) return void req.socket.destroy()
    const token = machineToken(BOOTSTRAP_KEY, this.#uid, claims.number)
    res.json({ machineToken: token, leaseSeconds: this.leaseSeconds })
  }

  async #beat(req: Request, res: Response): Promise<void> {
    const isKnown = bearer(req) === machineToken(BOOTSTRAP_KEY, this.#uid, this.#usedNumber)
    if (!isKnown || this.refusal !== undefined) return refuse(res, this.refusal ?? "agent-not-authentic")
    const beat = (await verifyMessage("beat", await text(req), this.joined?.signingKey ?? "")) as BeatRequest
    if (beat.sequence <= (this.last?.sequence ?? 0)) throw new Error(`message ${beat.sequence} is late`)
    this.beats.push(beat)
    await this.onBeat(beat)
    res.json(await this.#answer(beat, req))
  }

  async #answer(beat: BeatRequest, req: Request): Promise<BeatResponse> {
    const { leaseSeconds } = this
    if (beat.running !== undefined) {
      const isCurrent = this.#launch?.metadata.name === beat.running && this.#stop !== beat.running
      return { leaseSeconds, ...(!isCurrent && { stop: beat.running }) }
    }
    const waiting = (): StoredLaunch | undefined =>
      this.#launch?.metadata.name === beat.freed || beat.unfit !== undefined ? undefined : this.#launch
    const held = performance.now() + HELD_MS
    const isOver = (): boolean => beat.unfit !== undefined || req.socket.destroyed || performance.now() > held
    await until("there is a job", () => waiting() !== undefined || isOver())
    const launch = waiting()
    if (launch === undefined || this.joined === undefined) return { leaseSeconds }
    const next = await sealBootConfig(parseUserData(this.#userData(launch)), this.joined.encryptionKey)
    return { leaseSeconds, next }
  }
}

function bearer(req: Request): string {
  return (req.get("authorization") ?? "").replace(/^Bearer /, "")
}

function refuse(res: Response, refusal: Refusal): void {
  const problem = { type: PROBLEM_TYPE_BASE + refusal, title: refusal, detail: "as the test says" }
  res.status(REFUSALS[refusal]).type("application/problem+json").send(problem)
}
