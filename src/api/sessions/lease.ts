import type { Clock } from "../../core/apis/clock.ts"
import { ANNOTATIONS, keyOf, LABELS } from "../../core/apis/meta.ts"
import { IDENTITIES_NAMESPACE } from "../../core/identity/machine-users.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { ifFound } from "../../core/kube/errors.ts"
import { type Lease, leases, microTime } from "../../core/kube/lease.ts"
import type { Reflector, ReflectorOptions } from "../../core/kube/reflector.ts"

/**
 * The Lease of a session: which replica holds it. Through it the replicas find each other, since a person's connection and
 * the agent's may come to any two. It has no secret, and no command.
 */

/** Facts of an open session. */
export interface SessionFacts {
  id: string
  /** Namespace of the project. */
  namespace: string
  /** Uid of the job. */
  job: string
  launch: string
  /** Id of the caller who opened it. */
  by: string
  /** `exec`, or the port. */
  kind: "exec" | number
  /** RFC 3339. */
  since: string
  /** Part of the host at which browsers reach the port. Absent: they don't. */
  label?: string
}

/** Options of the reflector of the sessions' Leases. */
export const SESSIONS_CACHE: Pick<ReflectorOptions<Lease>, "resource" | "labelSelector" | "indexes"> = {
  resource: leases,
  labelSelector: LABELS.session,
  indexes: {
    launch: (lease) => indexed(sessionIn(lease)?.launch),
    job: (lease) => indexed(sessionIn(lease)?.job),
    label: (lease) => indexed(sessionIn(lease)?.label),
  },
}

function indexed(value: string | undefined): string[] {
  return value === undefined ? [] : [value]
}

/** Seconds without renewal after which no replica holds a session. */
const LEASE_SECONDS = 15

function leaseName(id: string): string {
  return `session-${id}`
}

/** Returns the session of a Lease; undefined for a Lease that is none. */
function sessionIn({ metadata }: Lease): SessionFacts | undefined {
  try {
    return JSON.parse(metadata.annotations?.[ANNOTATIONS.session] ?? "") as SessionFacts
  } catch {
    return undefined
  }
}

export interface SessionLeasesOptions {
  client: Pick<KubeClient, "create" | "patch" | "delete">
  /** Leases of all replicas. */
  cache: Pick<Reflector<Lease>, "store" | "onChange">
  clock: Clock
}

/** Leases of sessions. */
export class SessionLeases {
  readonly #options: SessionLeasesOptions
  /** Monotonic time at which each Lease was last seen to change: no replica reads another's clock. */
  readonly #changed = new Map<string, number>()
  #replicaUrl = ""
  readonly #onDeleted = new Map<string, () => void>()

  constructor(options: SessionLeasesOptions) {
    this.#options = options
    options.cache.onChange(({ key, current, old }) => {
      if (current !== undefined) return void this.#changed.set(key, options.clock.monotonic())
      this.#changed.delete(key)
      const id = old && sessionIn(old)?.id
      if (id !== undefined) this.#onDeleted.get(id)?.()
    })
  }

  /** Sets the URL at which other replicas reach this one. */
  setReplicaUrl(url: string): void {
    this.#replicaUrl = url
  }

  /** Calls back when the Lease of a session is deleted. */
  onDeleted(id: string, callback: () => void): void {
    this.#onDeleted.set(id, callback)
  }

  async create(facts: SessionFacts): Promise<void> {
    const { client, clock } = this.#options
    const now = microTime(clock.now())
    await client.create(leases, {
      apiVersion: "coordination.k8s.io/v1",
      kind: "Lease",
      metadata: {
        namespace: IDENTITIES_NAMESPACE,
        name: leaseName(facts.id),
        labels: { [LABELS.session]: "true" },
        annotations: { [ANNOTATIONS.session]: JSON.stringify(facts) },
      },
      spec: { holderIdentity: this.#replicaUrl, leaseDurationSeconds: LEASE_SECONDS, acquireTime: now, renewTime: now },
    })
  }

  /** @throws KubeError: 404 if the session was ended */
  async renew(id: string): Promise<void> {
    const { client, clock } = this.#options
    const merge = { spec: { renewTime: microTime(clock.now()) } }
    await client.patch(leases, { namespace: IDENTITIES_NAMESPACE, name: leaseName(id) }, { merge })
  }

  async delete(id: string): Promise<void> {
    this.#onDeleted.delete(id)
    await ifFound(this.#options.client.delete(leases, { namespace: IDENTITIES_NAMESPACE, name: leaseName(id) }))
  }

  /** Returns the cached sessions of a Launch or a job whose replicas still hold them. */
  of(index: "launch" | "job", value: string): SessionFacts[] {
    return this.#options.cache.store.byIndex(index, value).flatMap((lease) => {
      const facts = sessionIn(lease)
      return facts === undefined || this.#isOver(lease) ? [] : [facts]
    })
  }

  /** Returns the URL of the replica that holds a session; undefined if none does. */
  holderOf(id: string): string | undefined {
    const lease = this.#options.cache.store.get({ namespace: IDENTITIES_NAMESPACE, name: leaseName(id) })
    return this.#holderIn(lease)
  }

  /** Returns the URL of the replica that holds the session with this label of a host; undefined if none does. */
  holderOfLabel(label: string): string | undefined {
    return this.#holderIn(this.#options.cache.store.byIndex("label", label)[0])
  }

  #holderIn(lease: Lease | undefined): string | undefined {
    return lease === undefined || this.#isOver(lease) ? undefined : lease.spec.holderIdentity
  }

  /** Ids of sessions whose replicas have ended without deleting them. */
  abandoned(): string[] {
    return this.#options.cache.store.list().flatMap((lease) => {
      const facts = sessionIn(lease)
      return facts !== undefined && this.#isOver(lease) ? [facts.id] : []
    })
  }

  #isOver({ metadata: { namespace, name } }: Lease): boolean {
    const changed = this.#changed.get(keyOf({ metadata: { namespace, name } } as Lease)) ?? 0
    return this.#options.clock.monotonic() - changed > LEASE_SECONDS
  }
}
