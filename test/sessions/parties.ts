import { once } from "node:events"
import { afterAll, beforeAll } from "vitest"
import { WebSocket } from "ws"
import { GatewayClient } from "../../src/agent/gateway-client.ts"
import { Sessions } from "../../src/agent/sessions/sessions.ts"
import type { Session } from "../../src/api/sessions/session.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { API_VERSION } from "../../src/core/apis/meta.ts"
import { endOf, frameOf, readFrame, readResult, type StreamResult } from "../../src/core/apis/remote-command.ts"
import { type AgentKeys, generateAgentKeys } from "../../src/core/protocol/messages.ts"
import { type SessionTarget, sessionPath } from "../../src/core/protocol/sessions.ts"
import { createLogger } from "../../src/core/telemetry/logger.ts"
import { startGateway, type TestGateway } from "../harness/gateway.ts"
import { type LaunchFixture, launchFixture } from "../harness/launches.ts"
import { enterable } from "./process-entrance.ts"

/** Agent of a Launch, registered with keys of its own. */
export interface Agent {
  launch: StoredLaunch
  keys: AgentKeys
  client: GatewayClient
  /** Its part in sessions, with a container that people can enter. */
  sessions: Sessions
  /** Number of streams that it has opened. */
  entered: () => number
  /** All that it logs. */
  logged: () => string
}

/** Registers an agent for this Launch at a replica. Pass it to `close` at the end. */
export async function registeredAgent(replica: TestGateway, launch: StoredLaunch): Promise<Agent> {
  const keys = await generateAgentKeys()
  const config = replica.bootConfig(launch)
  const client = new GatewayClient(config, keys, systemClock)
  await client.register({ version: "test", runtime: "docker" })
  let entered = 0
  const lines: string[] = []
  const destination = { write: (line: string) => void lines.push(line) }
  const sessions = new Sessions({
    ...{ config, keys, clock: systemClock, onLost: () => undefined },
    logger: createLogger({ level: "debug", name: "agent", destination }),
    onEntered: () => void entered++,
  })
  sessions.admitTo(enterable)
  return { launch, keys, client, sessions, entered: () => entered, logged: () => lines.join("") }
}

export async function closeAgent({ sessions, client }: Agent): Promise<void> {
  sessions.close()
  await client.close()
}

/** Opens a session into a Launch's container at a replica. */
export async function openAt(replica: TestGateway, launch: StoredLaunch, target: SessionTarget): Promise<Session> {
  const job = { apiVersion: API_VERSION, kind: "Job", metadata: launch.spec.job, spec: launch.spec.run } as StoredJob
  const by = { job, launch: launch.metadata.name, by: "k-test" }
  return await replica.hub.open({ ...by, target, kind: target.port ?? "exec", whyOver: async () => undefined })
}

/** Session that runs a shell script. */
export function script(text: string): SessionTarget {
  return { exec: { command: ["sh", "-c", text], tty: false } }
}

/** One end of a connection, with all that it has received. */
export class End {
  readonly socket: WebSocket
  readonly received: Buffer[] = []
  readonly closed: Promise<[code: number, reason: string]>
  #arrived = Promise.withResolvers<void>()

  constructor(socket: WebSocket) {
    this.socket = socket
    socket.on("message", (data: Buffer) => {
      this.received.push(data)
      this.#arrived.resolve()
      this.#arrived = Promise.withResolvers()
    })
    this.closed = once(socket, "close").then(([code, reason]) => [code as number, String(reason)])
    this.closed.catch(() => undefined)
  }

  /** Waits until `found` returns something of what was received. @throws Error if the connection is closed before */
  async receives<T>(found: (received: readonly Buffer[]) => T | undefined): Promise<T> {
    for (;;) {
      const arrived = this.#arrived.promise
      const result = found(this.received)
      if (result !== undefined) return result
      await Promise.race([
        arrived,
        this.closed.then(([code, reason]) => {
          const last = found(this.received)
          if (last === undefined) throw new Error(`closed before: ${code} ${reason}: ${Buffer.concat(this.received)}`)
        }),
      ])
    }
  }

  /** Bytes of standard output so far. */
  get output(): string {
    const frames = this.received.map(readFrame).filter((frame) => frame?.channel === "stdout")
    return frames.map((frame) => Buffer.from(frame?.content ?? []).toString()).join("")
  }

  async shows(text: string): Promise<void> {
    await this.receives(() => (this.output.includes(text) ? true : undefined))
  }

  /** Waits for the result of the command. */
  result(): Promise<StreamResult> {
    return this.receives((all) => {
      const status = all.map(readFrame).find((frame) => frame?.channel === "status")
      return status && readResult(status.content)
    })
  }

  type(text: string): void {
    this.socket.send(frameOf("stdin", text))
  }

  endInput(): void {
    this.socket.send(endOf("stdin"))
  }
}

/** Opens a WebSocket. Resolves with the connection, or with the status of a refusal. */
export async function knock(
  url: string,
  { protocols = [], headers = {} }: { protocols?: string[]; headers?: Record<string, string> },
): Promise<End | number> {
  const socket = new WebSocket(url.replace(/^http/, "ws"), ["v5.channel.k8s.io", ...protocols], { headers })
  const end = new End(socket)
  socket.on("error", () => undefined)
  return await new Promise((resolve, reject) => {
    socket.once("open", () => resolve(end))
    socket.once("error", reject)
    socket.once("unexpected-response", (_request, response) => {
      response.resume()
      resolve(response.statusCode ?? 0)
    })
  })
}

/** @throws Error if it was refused */
export async function accepted(knocked: Promise<End | number>): Promise<End> {
  const end = await knocked
  if (typeof end === "number") throw new Error(`refused with ${end}`)
  return end
}

/** Path of people's connections to a session. */
export function clientPath({ facts }: Session): string {
  return `/1/jobs/job/sessions/${facts.id}`
}

/** Connects as the person of a session. */
export function asClient(replica: TestGateway, session: Session, more: object = {}): Promise<End | number> {
  return knock(replica.url + clientPath(session), { protocols: [`berth.session.${session.token.text}`], ...more })
}

/** Connects as the agent of a Launch, or as one who has its bearer token. The first message is the challenge. */
export function asAgent(
  replica: TestGateway,
  { launch, session, stream = 0 }: { launch: StoredLaunch; session: Session; stream?: number },
): Promise<End | number> {
  const { bootstrapToken } = replica.bootConfig(launch)
  const path = sessionPath(launch.metadata.name, session.facts.id, stream)
  return knock(replica.url + path, { headers: { Authorization: `Bearer ${bootstrapToken}` } })
}

/** Returns the challenge that an agent's connection has received. */
export async function challengeOf(end: End): Promise<string> {
  return await end.receives(([first]) => first && (JSON.parse(first.toString()) as { challenge: string }).challenge)
}

/** Namespace of the Launches of a file's tests, its gateway, and the agent of the job that people enter. */
export let fixture: LaunchFixture
export let replica: TestGateway
export let agent: Agent

/** Prepares them for the tests of a file. */
export function prepareParties(prefix: string, options: Parameters<typeof startGateway>[1] = {}): void {
  fixture = launchFixture(prefix)
  beforeAll(async () => {
    replica = await startGateway(fixture, options)
    agent = await registeredAgent(replica, await fixture.launch({}))
  })
  afterAll(async () => {
    await closeAgent(agent)
    await replica.close()
  })
}
