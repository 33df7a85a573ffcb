import type { StoredLaunch } from "../../core/apis/launch.ts"
import { type CancelState, cancelState } from "../../market/placement/caps.ts"
import type { LaunchLedger } from "../../market/placement/ledger.ts"
import type { Waiter } from "../../market/placement/line.ts"
import { buildMarket, cappedLevels, idleBeyondCaps, type Market } from "../../market/placement/market.ts"
import type { JobSettings } from "../../market/placement/settings.ts"
import type { JobControllerDependencies } from "./dependencies.ts"
import type { WaitingLine } from "./waiting-line.ts"

/** Time for which a state of caps is used again, seconds. All running jobs of a project ask for it. */
const CANCEL_STATE_SECONDS = 2

/** Answers what jobs ask of the market, from the caches and the Launches that this process is creating. */
export class JobMarkets {
  readonly #options: JobControllerDependencies
  readonly #ledger: LaunchLedger
  readonly #settings: JobSettings
  readonly #line: Pick<WaitingLine, "market">
  /** States of the caps that cancel running jobs, by namespace. */
  readonly #cancels = new Map<string, { at: number; state: CancelState }>()

  constructor(
    options: JobControllerDependencies,
    { ledger, settings, line }: { ledger: LaunchLedger; settings: JobSettings; line: Pick<WaitingLine, "market"> },
  ) {
    this.#options = options
    this.#ledger = ledger
    this.#settings = settings
    this.#line = line
  }

  /** Returns the market for a job that looks for a place, in its turn. */
  marketFor(waiter: Waiter): Market {
    const { namespace, uid } = waiter
    return this.#line.market(waiter, buildMarket(namespace, this.#options, this.#ledger.seenBy(uid), this.#settings))
  }

  /** Returns the idle VMs of a namespace that are to end because a cap allows fewer. */
  surplusIdle(namespace: string): readonly StoredLaunch[] {
    return idleBeyondCaps(namespace, this.#options, this.#ledger)
  }

  /** Returns the state of the caps that cancel running jobs of a namespace; undefined: there are none. */
  cancelState(namespace: string): CancelState | undefined {
    const { caps, clock } = this.#options
    const cancels = caps?.(namespace).some(({ caps: { onExceeded } }) => onExceeded === "cancel") ?? false
    if (!cancels) return undefined
    const at = clock.monotonic()
    const known = this.#cancels.get(namespace)
    if (known !== undefined && at - known.at < CANCEL_STATE_SECONDS) return known.state
    const state = cancelState(cappedLevels(namespace, this.#options, this.#ledger, this.#settings))
    this.#cancels.set(namespace, { at, state })
    return state
  }
}
