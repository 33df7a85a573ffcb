import { setTimeout as sleep } from "node:timers/promises"
import { isDeepStrictEqual } from "node:util"
import type { KubeClient } from "../../src/kube/client.ts"
import type { OpenTheatre } from "./crash-clouds.ts"
import { type Fault, nameOf, Plan, type Point } from "./crash-gate.ts"
import { reasonsOf, type Snapshot, snapshotOf } from "./crash-snapshot.ts"
import { type Operator, World } from "./crash-world.ts"
import type { Harm } from "./tally.ts"

/** A story with an end that it comes to whatever the operator's fate. */
export interface Scenario {
  /** What there is before the first operator. */
  begin(world: World): Promise<void>
  /** What people, agents and clouds do: called again and again, it looks and takes the next step. */
  go(world: World): Promise<void>
  isOver(world: World): Promise<boolean>
  /** What else than PASSING is told only by who looks while it is so. */
  passing?: readonly string[]
}

/** How a story ends without a fault, and all calls that were made on the way. */
export interface Rehearsal {
  end: Snapshot
  reasons: Set<string>
  points: Point[]
}

export interface Strike {
  point: Point
  fault: Fault
}

/** What became of a run with a fault. */
export interface Outcome {
  /** Whether the operator made the call at all that the fault was meant for. */
  struck: boolean
  harms: Harm[]
  /** Whether nothing but VMs was left, and the sweep has ended these. */
  isSwept: boolean
  /** For people: what went wrong, and how to see it again. */
  report: string
}

export interface Play {
  /** Names cloud and story. */
  title: string
  cloud: string
  scenario: Scenario
  client: KubeClient
  open: OpenTheatre
}

/** How long a run may take before it counts as stuck, seconds of this machine, which may be slow. */
const PATIENCE_SECONDS = 300
/** So long after all should be over, by its clock, a world may still hold what should be gone. */
const GRACE_SECONDS = 60
/** Within so long the sweep has looked twice, and a VM is not young any more. */
const SWEEP_SECONDS = 900
/** What is told of a job only by who looks while it is so. */
const PASSING: readonly string[] = ["Job Placed", "Job Booting"]
/** Nothing happens any more but by the clock when nothing has happened for so long. */
const QUIET_MS = 40

/** Plays a scenario without a fault. @throws Error when it does not come to its end, or does harm */
export async function rehearse(play: Play): Promise<Rehearsal> {
  const world = await World.open(play.client, play.open)
  const run = new Run(play, world, new Plan())
  try {
    await run.begin()
    if (!(await run.untilOver())) throw new Error(`${play.title} is stuck\n${await situation(world)}`)
    await run.pass(GRACE_SECONDS)
    const end = await snapshotOf(world)
    const points = run.plan.points()
    await run.stop()
    const violations = world.theatre.violations()
    if (world.harms.length > 0 || end.vms.length > 0 || violations.length > 0) {
      throw new Error(`${play.title}: ${JSON.stringify([world.harms, end.vms, violations])}`)
    }
    return { end, reasons: await reasonsOf(world), points }
  } finally {
    await world.close()
  }
}

/** Plays it with a fault, and compares the end. */
export async function strike(play: Play, { end, reasons }: Rehearsal, { point, fault }: Strike): Promise<Outcome> {
  const world = await World.open(play.client, play.open)
  const run = new Run(play, world, new Plan({ point, fault }))
  const found: { harm: Harm; what: string }[] = []
  try {
    await run.begin()
    if (await run.untilOver()) {
      await run.wake()
      found.push(...(await run.differences(end)))
    } else found.push({ harm: "stuck", what: "it does not come to its end" })
    const isLeft = found.length > 0 && found.every(({ harm }) => harm === "leaks")
    if (isLeft) await run.pass(SWEEP_SECONDS)
    const isSwept = isLeft && (await world.alive()).length === 0
    await run.stop()
    const passing = [...PASSING, ...(play.scenario.passing ?? [])]
    const said = [...(await reasonsOf(world))].filter((reason) => !reasons.has(reason) && !passing.includes(reason))
    if (said.length > 0) found.push({ harm: "lost", what: `an event says otherwise: ${said.join(", ")}` })
    found.push(...world.harms)
    for (const what of world.theatre.violations()) found.push({ harm: "lost", what })
    const title = `${play.title}: ${fault} ${nameOf(point)}`
    const told = found.length === 0 ? "" : `\n${await situation(world)}\n`
    const report = `${title}: ${found.map(({ harm, what }) => `${harm}: ${what}`).join("; ")}${told}`
    return { struck: run.plan.struck, harms: [...new Set(found.map(({ harm }) => harm))], isSwept, report }
  } finally {
    await world.close()
  }
}

/** One run of a story, with operators that follow each other. */
class Run {
  readonly plan: Plan
  readonly #play: Play
  readonly #world: World
  readonly #operators: Operator[] = []

  constructor(play: Play, world: World, plan: Plan) {
    this.#play = play
    this.#world = world
    this.plan = plan
  }

  async begin(): Promise<void> {
    await this.#play.scenario.begin(this.#world)
    await this.#start(this.plan)
  }

  async #start(plan: Plan): Promise<void> {
    this.#operators.push(await this.#world.startOperator(plan))
  }

  /** Whether it came to its end. */
  async untilOver(): Promise<boolean> {
    const { scenario } = this.#play
    return await this.#until(async () => {
      await scenario.go(this.#world)
      return await scenario.isOver(this.#world)
    })
  }

  /** Lets time pass by the world's clock. */
  async pass(seconds: number): Promise<void> {
    const end = this.#world.clock.ahead + seconds
    await this.#until(() => Promise.resolve(this.#world.clock.ahead >= end))
  }

  /** What differs from how it should end, after the time that it has for it. */
  async differences(end: Snapshot): Promise<{ harm: Harm; what: string }[]> {
    const until = this.#world.clock.ahead + GRACE_SECONDS
    let found: { harm: Harm; what: string }[] = []
    await this.#until(async () => {
      found = compare(end, await snapshotOf(this.#world))
      return found.length === 0 || this.#world.clock.ahead >= until
    })
    return found
  }

  /** Steps until `isDone`, with another operator where the last one has ended, and the clock put on when all is quiet. */
  async #until(isDone: () => Promise<boolean>): Promise<boolean> {
    const deadline = performance.now() + PATIENCE_SECONDS * 1000
    while (performance.now() < deadline) {
      if (await isDone()) return true
      await this.#succeed()
      await sleep(10)
      const last = this.#operators.at(-1)
      if (last === undefined || last.life.quietMs < QUIET_MS) continue
      // Who waits for the lease of one that is dead waits for nothing else.
      this.#world.clock.advance(last.life.leads ? 4 : 20)
    }
    return false
  }

  async #succeed(): Promise<void> {
    const last = this.#operators.at(-1)
    if (last?.ended === true || last?.life.dead === true || last?.life.paused === true) await this.#start(new Plan())
  }

  /** Lets who stood still go on, and waits for what comes of it. */
  async wake(): Promise<void> {
    const asleep = this.#operators.filter(({ life }) => life.paused)
    for (const { life } of asleep) life.resume()
    if (asleep.length > 0) await this.pass(GRACE_SECONDS / 2)
  }

  /** Ends them all in order. */
  async stop(): Promise<void> {
    for (const { life } of this.#operators) life.resume()
    for (const operator of this.#operators) await operator.stop()
  }
}

/** The harm that each difference is. */
function compare(expected: Snapshot, found: Snapshot): { harm: Harm; what: string }[] {
  const harms: { harm: Harm; what: string }[] = []
  for (const launch of found.vms) harms.push({ harm: "leaks", what: `a VM of ${launch} is left` })
  if (found.starts > expected.starts) {
    harms.push({ harm: "duplicates", what: `${found.starts} containers were started, not ${expected.starts}` })
  }
  for (const key of Object.keys(found.objects)) {
    if (!(key in expected.objects)) harms.push({ harm: /^(Job|Launch) /.test(key) ? "duplicates" : "leaks", what: key })
  }
  for (const [key, object] of Object.entries(expected.objects)) {
    if (isDeepStrictEqual(object, found.objects[key])) continue
    harms.push({ harm: "lost", what: `${key}: ${difference(object, found.objects[key])}` })
  }
  return harms
}

/** The first place where two values differ. */
function difference(expected: unknown, found: unknown, path = ""): string {
  const isInside = [expected, found].every((value) => typeof value === "object" && value !== null)
  if (!isInside) return `${path} is ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`
  const [a, b] = [expected, found] as [Record<string, unknown>, Record<string, unknown>]
  const key = [...new Set([...Object.keys(a), ...Object.keys(b)])].find((each) => !isDeepStrictEqual(a[each], b[each]))
  return key === undefined ? `${path}: no difference` : difference(a[key], b[key], `${path}.${key}`)
}

async function situation(world: World): Promise<string> {
  const { objects, vms } = await snapshotOf(world)
  return [JSON.stringify({ objects, vms }), ...world.lines.slice(-30)].join("\n")
}
