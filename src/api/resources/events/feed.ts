import type { Clock } from "../../../core/apis/clock.ts"
import type { ProjectScope } from "../../../core/identity/principal.ts"
import { compareResourceVersions } from "../../../core/kube/resource-version.ts"
import { type Owner, toOwner } from "../../../core/records/owner.ts"
import { unavailable } from "../../http/problem.ts"
import { advance, encodePosition, KINDS, type Kind, type Position } from "./position.ts"
import type { Changed, Source } from "./sources.ts"

/** Time in which several changes of an object become one event. */
const COALESCING_SECONDS = 0.25

/** Maximum number of events that are sent at a time. The next ones follow COALESCING_SECONDS later. */
const BATCH = 500

/** Changed objects that a replica remembers, of all projects together. They are about 4 MiB. */
const REMEMBERED = 20_000

const KEEP_ALIVE_SECONDS = 15

/** An event, in the form in which all clients get it. */
export interface Frame {
  changed: Pick<Changed, "kind" | "uid" | "name">
  text: string
}

/** Events of one moment. */
export interface Batch {
  frames: readonly Frame[]
  /** All frames, encoded once for all clients. */
  bytes: Buffer
}

/** One client of a project's events. */
export interface Subscriber {
  /** Sends events. */
  send(batch: Batch): void
  /** Sends text that isn't an event, such as a keep-alive. */
  sendText(text: string): void
  /** Says that the client has missed events: it must read the lists again. */
  reset(id: string): void
}

export interface FeedOptions {
  sources: readonly Source[]
  clock: Clock
}

/**
 * Changes of all projects, for clients that follow one. Each change is serialized once for all clients of a project. The
 * last changes are remembered, so that a client can resume on any replica that ran meanwhile.
 */
export class ChangeFeed {
  readonly #options: FeedOptions
  readonly #channels = new Map<string, Channel>()
  /** The last change of each object, the oldest first. */
  readonly #remembered = new Map<string, Changed>()
  /** Version of each kind from which on all changes are remembered; undefined before the first list. */
  readonly #complete = new Map<Kind, string>()
  /** Latest version of each kind's cache that a change had. */
  readonly #latest = new Map<Kind, string>()

  constructor(options: FeedOptions) {
    this.#options = options
    for (const source of options.sources) {
      source.onChange((changed) => this.#change(source, changed))
      const begin = (): void => void this.#complete.set(source.kind, source.store.resourceVersion ?? "0")
      const isSynced = (): boolean => source.store.resourceVersion !== undefined
      if (isSynced()) begin()
      else void source.store.waitUntil(isSynced, new AbortController().signal).then(begin)
    }
  }

  /**
   * Adds a client to a project's events. It gets all changes after `after`; if they are not known, a reset.
   * @returns a function that removes the client
   * @throws Problem 503 before the caches are filled
   */
  async subscribe(project: ProjectScope, after: Partial<Position> | undefined, subscriber: Subscriber) {
    const { namespace } = project
    const start = after && (await this.#resumed(after, namespace))
    const position = this.#now()
    if (position === undefined) throw unavailable("The server is still loading its cache: try again.")
    const channel =
      this.#channels.get(namespace) ?? new Channel({ ...this.#options, owner: toOwner(project), position })
    this.#channels.set(namespace, channel)
    // So the new client does not get again what it gets now.
    channel.flush()
    if (after === undefined) subscriber.sendText(`id: ${encodePosition(channel.position)}\n\n`)
    else if (start === undefined) subscriber.reset(encodePosition(channel.position))
    else subscriber.send(batchOf(channel.framesOf(this.#since(start, namespace), start)))
    channel.add(subscriber)
    return () => {
      if (channel.remove(subscriber) > 0 || this.#channels.get(namespace) !== channel) return
      this.#channels.delete(namespace)
    }
  }

  /** Returns the latest id of a project that a client may resume from. */
  idOf(namespace: string): string {
    const position = this.#channels.get(namespace)?.position ?? this.#now()
    return position === undefined ? "" : encodePosition(position)
  }

  /** Returns the position if all changes after it are remembered. */
  async #resumed(after: Partial<Position>, namespace: string): Promise<Position | undefined> {
    const isKnown = async ({ kind, store, latest }: Source): Promise<boolean> => {
      const [version, complete] = [after[kind], this.#complete.get(kind)]
      if (version === undefined || complete === undefined) return false
      if (compareResourceVersions(version, complete) < 0) return false
      // The version of a quiet kind moves once a minute. A version that the API server has never had is not resumed: the
      // server was restored from a backup.
      return store.reached(version) || compareResourceVersions(version, await latest(namespace)) <= 0
    }
    const known = await Promise.all(this.#options.sources.map(isKnown))
    return known.every(Boolean) ? (after as Position) : undefined
  }

  #since(start: Position, namespace: string): Changed[] {
    return [...this.#remembered.values()].filter(
      (changed) => changed.namespace === namespace && compareResourceVersions(changed.version, start[changed.kind]) > 0,
    )
  }

  #now(): Position | undefined {
    const versions = this.#options.sources.map(({ kind, store }) => [kind, store.resourceVersion] as const)
    if (versions.some(([, version]) => version === undefined)) return undefined
    return Object.fromEntries(versions) as Position
  }

  #change({ kind, store }: Source, changed: Changed): void {
    const complete = this.#complete.get(kind)
    // The objects of the first list aren't changes.
    if (complete === undefined) return
    const version = store.resourceVersion ?? "0"
    const latest = this.#latest.get(kind) ?? complete
    this.#latest.set(kind, version)
    if (compareResourceVersions(version, latest) < 0) {
      this.#startAgain()
      return
    }
    const id = `${kind}/${changed.uid}`
    this.#remembered.delete(id)
    this.#remembered.set(id, changed)
    this.#channels.get(changed.namespace)?.change(id, changed)
    if (this.#remembered.size > REMEMBERED) this.#forgetOldest()
  }

  #forgetOldest(): void {
    for (const [id, { kind, version }] of this.#remembered) {
      this.#remembered.delete(id)
      const complete = this.#complete.get(kind) ?? "0"
      if (compareResourceVersions(version, complete) > 0) this.#complete.set(kind, version)
      return
    }
  }

  /** Forgets all positions: the API server was restored from a backup, so its versions are used a second time. */
  #startAgain(): void {
    this.#remembered.clear()
    for (const { kind, store } of this.#options.sources) this.#complete.set(kind, store.resourceVersion ?? "0")
    const position = this.#now()
    if (position !== undefined) for (const channel of this.#channels.values()) channel.reset(position)
  }
}

interface ChannelOptions extends FeedOptions {
  owner: Owner
  position: Position
}

/** Clients of one project, and the changes that they are to get next. */
class Channel {
  readonly #options: ChannelOptions
  readonly #subscribers = new Set<Subscriber>()
  readonly #pending = new Map<string, Changed>()
  #cancelKeepAlive: () => void
  #cancelFlush: (() => void) | undefined
  /** Clients have all changes up to it. */
  position: Position

  constructor(options: ChannelOptions) {
    this.#options = options
    this.position = options.position
    this.#cancelKeepAlive = this.#keepAliveLater()
  }

  add(subscriber: Subscriber): void {
    this.#subscribers.add(subscriber)
  }

  /** Returns the number of clients that are left. */
  remove(subscriber: Subscriber): number {
    this.#subscribers.delete(subscriber)
    if (this.#subscribers.size === 0) {
      this.#cancelFlush?.()
      this.#cancelKeepAlive()
    }
    return this.#subscribers.size
  }

  change(id: string, changed: Changed): void {
    this.#pending.set(id, changed)
    this.#cancelFlush ??= this.#options.clock.setTimer(COALESCING_SECONDS, () => this.flush())
  }

  /** Returns the events of changes. Each has the id of a client that had all changes up to `start` and has got these. */
  framesOf(changes: readonly Changed[], start: Position): Frame[] {
    const { sources, owner } = this.#options
    let position = start
    return changes.toSorted(inOrder).map((changed) => {
      const shown = sources.find(({ kind }) => kind === changed.kind)?.read(changed, owner)
      position = advance(position, changed.kind, changed.version)
      const data = shown?.record ?? { id: changed.uid, name: changed.name, deleted: true }
      const text = `event: ${changed.kind}\nid: ${encodePosition(position)}\ndata: ${JSON.stringify(data)}\n\n`
      return { changed, text }
    })
  }

  reset(position: Position): void {
    this.position = position
    this.#pending.clear()
    for (const subscriber of this.#subscribers) subscriber.reset(encodePosition(position))
  }

  /** Sends the pending changes. */
  flush(): void {
    this.#cancelFlush?.()
    this.#cancelFlush = undefined
    const changes = [...this.#pending].sort(([, a], [, b]) => inOrder(a, b)).slice(0, BATCH)
    for (const [id] of changes) this.#pending.delete(id)
    const frames = this.framesOf(
      changes.map(([, changed]) => changed),
      this.position,
    )
    for (const [, { kind, version }] of changes) this.position = advance(this.position, kind, version)
    const batch = batchOf(frames)
    if (frames.length > 0) for (const subscriber of this.#subscribers) subscriber.send(batch)
    if (this.#pending.size === 0) this.#catchUp()
    else this.#cancelFlush = this.#options.clock.setTimer(COALESCING_SECONDS, () => this.flush())
  }

  /** Moves the position to the caches', which have no other change of this project. */
  #catchUp(): void {
    for (const { kind, store } of this.#options.sources) {
      this.position = advance(this.position, kind, store.resourceVersion ?? "0")
    }
  }

  /** Sends the position, too: without it, a client of a quiet project would resume from a version that is forgotten. */
  #keepAliveLater(): () => void {
    return this.#options.clock.setTimer(KEEP_ALIVE_SECONDS, () => {
      if (this.#pending.size === 0) this.#catchUp()
      const text = `: keep-alive\nid: ${encodePosition(this.position)}\n\n`
      for (const subscriber of this.#subscribers) subscriber.sendText(text)
      this.#cancelKeepAlive = this.#keepAliveLater()
    })
  }
}

/** Compares changes: by kind, then by version. */
function inOrder(a: Changed, b: Changed): number {
  return KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind) || compareResourceVersions(a.version, b.version)
}

function batchOf(frames: readonly Frame[]): Batch {
  return { frames, bytes: Buffer.from(frames.map(({ text }) => text).join("")) }
}
