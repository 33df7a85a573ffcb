import { setImmediate } from "node:timers/promises"

/** Step that may happen next. */
export interface Step<S> {
  name: string
  next: S
}

/** System of states and steps, with its invariants. */
export interface Model<S> {
  initial: S
  /** Returns a key that is equal for equal states only. */
  keyOf(state: S): string
  /** Returns all steps that may happen next. */
  steps(state: S): Step<S>[]
  /** Returns the violation in a state, or in a step to it; undefined if there is none. */
  fault(state: S, before?: S): string | undefined
  /** Returns the same state without further faults. */
  calm(state: S): S
  /**
   * Returns the next step if no faults happen and each part gets its turn; undefined at the end. `waits`: time had to
   * pass for the step.
   */
  fairStep(state: S): (Step<S> & { waits: boolean }) | undefined
  /** Returns the violation in an end after this many waits; undefined if there is none. */
  endFault(state: S, end: S, waits: number): string | undefined
}

/** Result of an exploration. */
export interface Exploration {
  states: number
  steps: number
  /** True if every reachable state was visited, not only the nearest ones. */
  complete: boolean
  /** Length of the longest of the shortest paths to a state. */
  depth: number
  /** First violation that was found, with the shortest path to it. */
  violation?: { fault: string; trace: string[] }
}

interface Visit<S> {
  /** Undefined once its steps are known: millions of states need too much memory. */
  state: S | undefined
  parent: number
  name: string
  depth: number
}

/** Number of states between two progress reports. */
const LOOKED_EVERY = 100_000
/** Maximum number of steps on a fair path to the end. */
const FAIR_STEPS = 2000
/** Number of steps that are shown of a path without an end. */
const FAIR_SHOWN = 40

/** Common end of all fair paths through a state. */
interface FairEnd<S> {
  end: S
  waits: number
}

/**
 * Visits at most `states` reachable states. The nearest states come first, so the path to a violation is the shortest.
 * From each state, the fair path must lead to an end. Calls `looked` now and then with the number of visited states,
 * and lets other tasks run.
 */
export async function explore<S>(
  model: Model<S>,
  maxStates: number,
  looked: (states: number) => void,
): Promise<Exploration> {
  const search = new Search(model, maxStates)
  return await search.run(looked)
}

/** Walks one long path by the choices, and takes the fair path from each of its states. */
export function walk<S>(model: Model<S>, choices: Iterable<number>): Exploration {
  const search = new Search(model, Number.POSITIVE_INFINITY)
  return search.walk(choices)
}

class Search<S> {
  readonly #model: Model<S>
  readonly #maxStates: number
  readonly #visits: Visit<S>[] = []
  readonly #seen = new Set<string>()
  readonly #ends = new Map<string, FairEnd<S>>()
  #steps = 0
  #complete = true

  constructor(model: Model<S>, maxStates: number) {
    this.#model = model
    this.#maxStates = maxStates
  }

  async run(looked: (states: number) => void): Promise<Exploration> {
    this.#visit(this.#model.initial, { parent: -1, name: "", depth: 0 })
    for (let index = 0; index < this.#visits.length; index++) {
      if (index > 0 && index % LOOKED_EVERY === 0) {
        looked(index)
        await setImmediate()
      }
      const visit = this.#visits[index] as Visit<S>
      const state = visit.state as S
      visit.state = undefined
      const fault = this.#errorOf(state) ?? this.#fairFault(state)
      if (fault !== undefined) return this.#result({ fault: fault.what, trace: [...this.#trace(index), ...fault.way] })
      for (const { name, next } of this.#model.steps(state)) {
        this.#steps++
        const wrong = this.#model.fault(next, state)
        if (wrong !== undefined) return this.#result({ fault: wrong, trace: [...this.#trace(index), name] })
        this.#visit(next, { parent: index, name, depth: visit.depth + 1 })
      }
    }
    return this.#result()
  }

  walk(choices: Iterable<number>): Exploration {
    let state = this.#model.initial
    this.#visits.push({ state: undefined, parent: -1, name: "", depth: 0 })
    for (const choice of choices) {
      const steps = this.#model.steps(state)
      const step = steps[choice % steps.length]
      if (step === undefined) break
      this.#steps++
      const wrong = this.#model.fault(step.next, state)
      state = step.next
      const parent = this.#visits.length - 1
      this.#visits.push({ state: undefined, parent, name: step.name, depth: parent + 1 })
      const fault = wrong === undefined ? this.#fairFault(state) : { what: wrong, way: [] }
      if (fault === undefined) continue
      return this.#result({ fault: fault.what, trace: [...this.#trace(this.#visits.length - 1), ...fault.way] })
    }
    return this.#result()
  }

  #visit(state: S, visit: Omit<Visit<S>, "state">): void {
    const key = this.#model.keyOf(state)
    if (this.#seen.has(key)) return
    if (this.#visits.length >= this.#maxStates) {
      this.#complete = false
      return
    }
    this.#seen.add(key)
    this.#visits.push({ state, ...visit })
  }

  #errorOf(state: S): { what: string; way: string[] } | undefined {
    const what = this.#model.fault(state)
    return what === undefined ? undefined : { what, way: [] }
  }

  #fairFault(state: S): { what: string; way: string[] } | undefined {
    const way: { key: string; name: string; waits: boolean }[] = []
    let found: FairEnd<S> | undefined
    let current = this.#model.calm(state)
    while (found === undefined) {
      const key = this.#model.keyOf(current)
      found = this.#ends.get(key)
      if (found !== undefined) break
      const step = this.#model.fairStep(current)
      if (step === undefined) found = { end: current, waits: 0 }
      way.push({ key, name: step?.name ?? "the end", waits: step?.waits ?? false })
      if (step !== undefined) current = step.next
      if (way.length > FAIR_STEPS) {
        return { what: `no end after ${FAIR_STEPS} fair steps`, way: way.slice(0, FAIR_SHOWN).map(fairly) }
      }
    }
    let end = found
    for (const { key, waits } of way.reverse()) {
      end = { end: end.end, waits: end.waits + (waits ? 1 : 0) }
      this.#ends.set(key, end)
    }
    const what = this.#model.endFault(state, end.end, end.waits)
    return what === undefined ? undefined : { what, way: this.#fairWay(state) }
  }

  #fairWay(state: S): string[] {
    const names: string[] = []
    for (
      let step = this.#model.fairStep(this.#model.calm(state));
      step !== undefined;
      step = this.#model.fairStep(step.next)
    ) {
      names.push(fairly(step))
    }
    return names
  }

  #trace(index: number): string[] {
    const names: string[] = []
    for (let at = index; at > 0; ) {
      const visit = this.#visits[at] as Visit<S>
      names.push(visit.name)
      at = visit.parent
    }
    return names.reverse()
  }

  #result(violation?: Exploration["violation"]): Exploration {
    return {
      states: this.#visits.length,
      steps: this.#steps,
      complete: this.#complete && violation === undefined,
      depth: this.#visits.at(-1)?.depth ?? 0,
      ...(violation !== undefined && { violation }),
    }
  }
}

function fairly({ name }: { name: string }): string {
  return `(fair) ${name}`
}
