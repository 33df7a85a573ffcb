import type { Clock } from "../../apis/clock.ts"
import { LAUNCH, type StoredLaunch } from "../../apis/launch.ts"
import type { KubeClient } from "../../kube/client.ts"
import { resourceOf } from "../../kube/resource.ts"
import type { Source } from "../../runtime/controller.ts"
import type { Attempts, Silence } from "./unanswered.ts"

const LAUNCHES = resourceOf<StoredLaunch>(LAUNCH)

/**
 * What is provably known of calls to clouds in this term of leadership. A launch call for a Launch may be outstanding
 * unless this leader has seen its whole life: the Launch was not there when the term began (a live list, after the
 * lease was taken, so that whatever an earlier leader may have acted on is in it), and no call was made since
 * whose outcome is unknown. An earlier leader can't call later: its fence doesn't let it.
 */
export class CloudCalls {
  readonly #inherited = new Set<string>()
  readonly #unanswered = new Set<string>()
  readonly #attempts = new Map<string, Attempts>()
  readonly #terminateAsked = new Map<string, number>()
  readonly #clock: Clock

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Begins a term each time that the controller is run, before its first reconcile. */
  term(client: Pick<KubeClient, "pages">, systemNamespace: string): Source {
    return {
      subscribe: () => () => undefined,
      whenSynced: async (signal) => {
        for (const known of [this.#inherited, this.#unanswered, this.#attempts, this.#terminateAsked]) known.clear()
        for await (const page of client.pages(LAUNCHES, { namespace: systemNamespace, signal })) {
          for (const launch of page.items) this.#inherited.add(launch.metadata.name)
        }
      },
    }
  }

  /** Whether a launch call may have been made whose outcome nobody knows. */
  isOutstanding(name: string): boolean {
    return this.#inherited.has(name) || this.#unanswered.has(name)
  }

  /**
   * A launch call is about to be made. Call what is returned when the cloud says that this very call did not happen:
   * that tells nothing of earlier ones.
   */
  asking(name: string): () => void {
    if (this.#unanswered.has(name)) return () => undefined
    this.#unanswered.add(name)
    return () => this.#unanswered.delete(name)
  }

  /** An attempt has failed: the cloud's answer is still to come. */
  failed(name: string, silence: Silence): void {
    const before = this.#attempts.get(name)
    const since = before?.class === silence.class ? before.since : this.#clock.now()
    this.#attempts.set(name, { ...before, ...silence, since })
  }

  /** The attempts so far have been written down. */
  told(name: string): void {
    const attempts = this.#attempts.get(name)
    if (attempts !== undefined) this.#attempts.set(name, { ...attempts, told: this.#clock.now() })
  }

  /** The attempts that this leader has made since an answer came; undefined: the last one brought one, or there was none. */
  attempts(name: string): Attempts | undefined {
    return this.#attempts.get(name)
  }

  /** The outcome is known and written down. */
  settled(name: string): void {
    this.#inherited.delete(name)
    this.#unanswered.delete(name)
    this.#attempts.delete(name)
  }

  askedToTerminate(name: string): void {
    this.#terminateAsked.set(name, this.#clock.monotonic())
  }

  terminateAskedSecondsAgo(name: string): number | undefined {
    const at = this.#terminateAsked.get(name)
    return at === undefined ? undefined : this.#clock.monotonic() - at
  }

  /** The Launch is over: nothing about it is needed any more. */
  forget(name: string): void {
    this.settled(name)
    this.#terminateAsked.delete(name)
  }
}
