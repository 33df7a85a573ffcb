import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { startFacade } from "../../src/api/main.ts"
import { isBound } from "../../src/core/apis/apikey.ts"
import { API_KEYS } from "../../src/core/resources.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import type { Fixture } from "../faults/crash-fixture.ts"
import { Life, NthChange, Plan } from "../faults/crash-gate.ts"
import { makeKey } from "../harness/api-keys.ts"
import type { ProgramFault } from "./scenario.ts"

/** Tries of one request before it counts as impossible. */
const TRIES = 20
/** Time after which a client gives up an answer, milliseconds: a frozen façade sends none. */
const ANSWER_MS = 10_000
/** Name of the users' key. */
const KEY = "users"

interface Replica {
  url: string
  life: Life
  stop: AbortController
  ended: Promise<void>
}

/** Façades to which users submit, one after the other: each has a fault of the scenario. Users try again with the same key. */
export class Front {
  readonly #fixture: Fixture
  readonly #faults: readonly ProgramFault[]
  readonly #replicas: Replica[] = []
  #folder = ""
  #key = ""

  constructor(fixture: Fixture, faults: readonly ProgramFault[]) {
    this.#fixture = fixture
    this.#faults = faults
  }

  /** Number of façades that had a fault. */
  get faults(): number {
    return Math.min(this.#replicas.length, this.#faults.length)
  }

  /** True once the users' key can be used: an operator has confirmed it. */
  async isOpen(): Promise<boolean> {
    const { client, namespace } = this.#fixture
    if (this.#key === "") this.#key = await makeKey(client, namespace, "developer", { name: KEY })
    return isBound(await client.get(API_KEYS, { namespace, name: KEY }))
  }

  /** Creates an object by REST, as `berth` does. @throws Error if it is rejected, or if no façade ever answers */
  async post(path: string, body: object & { name: string }): Promise<void> {
    const { namespace } = this.#fixture
    const headers = {
      "content-type": "application/json",
      ...{ "x-service-api-key": this.#key, "idempotency-key": `create ${path} ${body.name}` },
    }
    let answer = "none"
    for (let attempt = 0; attempt < TRIES; attempt++) {
      const { url } = await this.#replica()
      const asked = fetch(`${url}/projects/${namespace}/1/${path}`, {
        method: "POST",
        headers,
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(ANSWER_MS),
      })
      const response = await asked.catch((error: unknown) => String(error))
      answer = typeof response === "string" ? response : `${response.status} ${await response.text()}`
      if (typeof response !== "string" && response.status === 201) return
      const isRefused = typeof response !== "string" && response.status < 500 && ![401, 409].includes(response.status)
      if (isRefused) break
    }
    throw new Error(`POST /1/${path} of ${body.name}: ${answer}`)
  }

  /** Kills the façade that runs. */
  kill(): void {
    this.#replicas.at(-1)?.life.kill()
  }

  async close(): Promise<void> {
    for (const { life, stop, ended } of this.#replicas) {
      life.resume()
      stop.abort()
      await ended
    }
    if (this.#folder !== "") await rm(this.#folder, { recursive: true, force: true })
  }

  /** Returns a façade that lives, or starts the next one. */
  async #replica(): Promise<Replica> {
    const last = this.#replicas.at(-1)
    if (last !== undefined && !last.life.dead && !last.life.paused) return last
    const fault = this.#faults[this.#replicas.length]
    const stop = new AbortController()
    const life = new Life(fault === undefined ? new Plan() : new NthChange(fault), this.#fixture, () => stop.abort())
    const { systemNamespace, namespace: watchNamespace, seen, fixture } = this.#fixture
    if (this.#folder === "") this.#folder = await mkdtemp(join(tmpdir(), "berth-together-"))
    const options = { host: "127.0.0.1", port: 0, baseDomain: "localhost", logsDir: this.#folder }
    const { url, ended } = await startFacade(
      { ...options, systemNamespace, watchNamespace, sessions: true },
      {
        client: life.client(this.#fixture.client, seen),
        ...{ clouds: ["sim", "own"], providers: {}, ownAccounts: fixture.accounts, architectures: [] },
        offers: fixedOffers(fixture.offers),
        logger: this.#fixture.logger("facade"),
      },
      stop.signal,
    )
    const replica = { url, life, stop, ended: ended.catch(() => undefined) }
    this.#replicas.push(replica)
    return replica
  }
}
