import { setTimeout as sleep } from "node:timers/promises"
import { isDeepStrictEqual } from "node:util"
import type { KubeClient } from "../../src/core/kube/client.ts"
import type { OpenCloudFixture } from "./crash-clouds.ts"
import { Fixture, type Operator } from "./crash-fixture.ts"
import { type Fault, nameOf, Plan, type Point } from "./crash-gate.ts"
import { reasonsOf, type Snapshot, snapshotOf } from "./crash-snapshot.ts"
import type { Finding, Violation } from "./tally.ts"

/** Scenario that ends correctly despite any fault of the operator. */
export interface Scenario {
  /** Creates the objects that exist before the first operator starts. */
  begin(fixture: Fixture): Promise<void>
  /** Acts for users, agents and clouds: each call looks at the objects and takes the next step. */
  go(fixture: Fixture): Promise<void>
  isOver(fixture: Fixture): Promise<boolean>
  /** Reasons of events, beside PASSING, that depend on the moment of a reconcile. */
  passing?: readonly string[]
  /** Fields of objects that depend on the fault: the operator may never learn their values. */
  unknowable?: readonly string[]
  /** Objects whose whole content depends on the fault, such as `Launch job-1`. That they exist is compared. */
  unknowableObjects?: readonly string[]
  /** Returns the part of an end that is compared, if more than fields and objects of it depends on the fault. */
  known?(end: Snapshot): Snapshot
  /** Returns violations at the end that the comparison with the run without a fault does not show. */
  harm?(fixture: Fixture): Promise<Finding[]>
  /** True if several Launches pay for one VM: each of them may be rounded. */
  sharesVms?: boolean
}

/** End of a scenario without a fault, and all calls on the way. */
export interface BaselineRun {
  end: Snapshot
  reasons: Set<string>
  points: Point[]
}

export interface InjectedFault {
  point: Point
  fault: Fault
}

/** Result of a run with a fault. */
export interface Outcome {
  /** True if the operator made the call of the fault. */
  injected: boolean
  violations: Violation[]
  /** True if only VMs were left, and garbage collection has deleted them. */
  isSwept: boolean
  /** Text with the differences and the title that repeats the run. */
  report: string
}

export interface ScenarioRun {
  /** Cloud and scenario. */
  title: string
  cloud: string
  scenario: Scenario
  client: KubeClient
  open: OpenCloudFixture
}

/** Seconds of real time after which a run counts as stuck. The machine may be slow. */
const PATIENCE_SECONDS = 300
/** Seconds by the fixture's clock after its end in which everything must be deleted. */
const GRACE_SECONDS = 60
/** Seconds in which garbage collection runs twice and a VM reaches the minimum age. */
const SWEEP_SECONDS = 900
/** Largest sum of the rounding of seconds and digits in the Launches that share a VM, USD. */
const ROUNDING_USD = 0.0005
/** Reasons of events that an operator emits only if it reconciles in time. */
const PASSING: readonly string[] = ["Job Placed"]
/** Milliseconds without a change after which only the clock can cause the next one. */
const QUIET_MS = 40

/** Runs a scenario without a fault. @throws Error if it does not end, or has a violation */
export async function runBaseline(scenarioRun: ScenarioRun): Promise<BaselineRun> {
  const fixture = await Fixture.open(scenarioRun.client, scenarioRun.open)
  const run = new Run(scenarioRun, fixture, new Plan())
  try {
    await run.begin()
    if (!(await run.untilOver())) throw new Error(`${scenarioRun.title} is stuck\n${await situation(fixture)}`)
    await run.pass(GRACE_SECONDS)
    const end = await snapshotOf(fixture)
    const points = run.plan.points()
    await run.stop()
    const violations = [...fixture.fixture.violations(), ...(await run.wrongSums())]
    if (fixture.violations.length > 0 || end.vms.length > 0 || violations.length > 0) {
      throw new Error(`${scenarioRun.title}: ${JSON.stringify([fixture.violations, end.vms, violations])}`)
    }
    return { end, reasons: await reasonsOf(fixture), points }
  } finally {
    await fixture.close()
  }
}

/** Runs a scenario with a fault, and compares its end with the baseline. */
export async function inject(
  scenarioRun: ScenarioRun,
  { end, reasons }: BaselineRun,
  { point, fault }: InjectedFault,
): Promise<Outcome> {
  const fixture = await Fixture.open(scenarioRun.client, scenarioRun.open)
  const run = new Run(scenarioRun, fixture, new Plan({ point, fault }))
  const found: Finding[] = []
  try {
    await run.begin()
    if (await run.untilOver()) {
      await run.wake()
      found.push(...(await run.differences(end)))
    } else found.push({ violation: "stuck", what: "it does not come to its end" })
    const isLeft = found.length > 0 && found.every(({ violation }) => violation === "leaks")
    if (isLeft) await run.pass(SWEEP_SECONDS)
    const isSwept = isLeft && (await fixture.alive()).length === 0
    await run.stop()
    const passing = [...PASSING, ...(scenarioRun.scenario.passing ?? [])]
    const said = [...(await reasonsOf(fixture))].filter((reason) => !reasons.has(reason) && !passing.includes(reason))
    if (said.length > 0) found.push({ violation: "lost", what: `an event says otherwise: ${said.join(", ")}` })
    found.push(...fixture.violations)
    for (const what of fixture.fixture.violations()) found.push({ violation: "lost", what })
    const title = `${scenarioRun.title}: ${fault} ${nameOf(point)}`
    const told = found.length === 0 ? "" : `\n${await situation(fixture)}\n`
    const report = `${title}: ${found.map(({ violation, what }) => `${violation}: ${what}`).join("; ")}${told}`
    return {
      injected: run.plan.injected,
      violations: [...new Set(found.map(({ violation }) => violation))],
      isSwept,
      report,
    }
  } finally {
    await fixture.close()
  }
}

/** Run of a scenario, with one operator after the other. */
class Run {
  readonly plan: Plan
  readonly #scenarioRun: ScenarioRun
  readonly #fixture: Fixture
  readonly #operators: Operator[] = []

  constructor(scenarioRun: ScenarioRun, fixture: Fixture, plan: Plan) {
    this.#scenarioRun = scenarioRun
    this.#fixture = fixture
    this.plan = plan
  }

  async begin(): Promise<void> {
    await this.#scenarioRun.scenario.begin(this.#fixture)
    await this.#start(this.plan)
  }

  async #start(plan: Plan): Promise<void> {
    this.#operators.push(await this.#fixture.startOperator(plan))
  }

  /** Returns true if the scenario has ended. */
  async untilOver(): Promise<boolean> {
    const { scenario } = this.#scenarioRun
    return await this.#until(async () => {
      await scenario.go(this.#fixture)
      return await scenario.isOver(this.#fixture)
    })
  }

  /** Lets this many seconds pass by the fixture's clock. */
  async pass(seconds: number): Promise<void> {
    const end = this.#fixture.clock.ahead + seconds
    await this.#until(() => Promise.resolve(this.#fixture.clock.ahead >= end))
  }

  /** Returns the differences from the expected end that remain after the grace period. */
  async differences(end: Snapshot): Promise<Finding[]> {
    const until = this.#fixture.clock.ahead + GRACE_SECONDS
    let found: Finding[] = []
    await this.#until(async () => {
      found = compare(end, await snapshotOf(this.#fixture), this.#scenarioRun.scenario)
      if (found.length === 0) found = await this.wrongSums()
      return found.length === 0 || this.#fixture.clock.ahead >= until
    })
    return found
  }

  /**
   * Steps until `isDone`. Starts another operator after the last one has ended, and advances the clock when nothing
   * happens.
   */
  async #until(isDone: () => Promise<boolean>): Promise<boolean> {
    const deadline = performance.now() + PATIENCE_SECONDS * 1000
    while (performance.now() < deadline) {
      if (await isDone()) return true
      await this.#succeed()
      await sleep(10)
      const last = this.#operators.at(-1)
      if (last === undefined || last.life.quietMs < QUIET_MS) continue
      // An operator that waits for a dead one's lease has no other timer.
      this.#fixture.clock.advance(last.life.leads ? 4 : 20)
    }
    return false
  }

  async #succeed(): Promise<void> {
    const last = this.#operators.at(-1)
    if (last?.ended === true || last?.life.dead === true || last?.life.paused === true) await this.#start(new Plan())
  }

  /** Returns what is wrong with the costs: by the cloud's bill and view, and by the scenario's own look. */
  async wrongSums(): Promise<Finding[]> {
    const { scenario } = this.#scenarioRun
    const byCloud = this.#fixture.fixture.harm?.(await this.#fixture.launches()) ?? []
    return [...(await this.#unstated()), ...byCloud, ...((await scenario.harm?.(this.#fixture)) ?? [])]
  }

  /** Returns the difference between the cloud's bill and the Statements. */
  async #unstated(): Promise<Finding[]> {
    const billed = this.#fixture.fixture.billUsd?.()
    const stated = await this.#fixture.statedUsd()
    const tolerated = this.#scenarioRun.scenario.sharesVms === true ? ROUNDING_USD : 0
    if (billed === undefined || Math.abs(stated - billed) <= tolerated) return []
    const violation = stated < billed ? "lost" : "duplicates"
    return [{ violation, what: `the cloud bills ${billed} USD, and the Statements have ${stated}` }]
  }

  /** Resumes paused operators, and waits for their actions. */
  async wake(): Promise<void> {
    const asleep = this.#operators.filter(({ life }) => life.paused)
    for (const { life } of asleep) life.resume()
    if (asleep.length > 0) await this.pass(GRACE_SECONDS / 2)
  }

  /** Stops all operators in order. */
  async stop(): Promise<void> {
    for (const { life } of this.#operators) life.resume()
    for (const operator of this.#operators) await operator.stop()
  }
}

/** Returns the violation that each difference means. */
function compare(
  expectedEnd: Snapshot,
  foundEnd: Snapshot,
  { unknowable = [], unknowableObjects = [], known: part = (end) => end }: Scenario,
): Finding[] {
  const [expected, found] = [part(expectedEnd), part(foundEnd)]
  const known = (value: unknown) =>
    JSON.parse(JSON.stringify(value ?? null, (key, each: unknown) => (unknowable.includes(key) ? undefined : each)))
  const violations: Finding[] = []
  for (const launch of found.vms) violations.push({ violation: "leaks", what: `a VM of ${launch} is left` })
  if (found.starts > expected.starts) {
    violations.push({
      violation: "duplicates",
      what: `${found.starts} containers were started, not ${expected.starts}`,
    })
  }
  for (const key of Object.keys(found.objects)) {
    if (!(key in expected.objects))
      violations.push({ violation: /^(Job|Launch) /.test(key) ? "duplicates" : "leaks", what: key })
  }
  for (const [key, object] of Object.entries(expected.objects)) {
    if (unknowableObjects.includes(key) && key in found.objects) continue
    const [wanted, present]: unknown[] = [known(object), known(found.objects[key])]
    if (isDeepStrictEqual(wanted, present)) continue
    violations.push({ violation: "lost", what: `${key}: ${difference(wanted, present)}` })
  }
  return violations
}

/** Describes the first place where two values differ. */
function difference(expected: unknown, found: unknown, path = ""): string {
  const isInside = [expected, found].every((value) => typeof value === "object" && value !== null)
  if (!isInside) return `${path} is ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`
  const [a, b] = [expected, found] as [Record<string, unknown>, Record<string, unknown>]
  const key = [...new Set([...Object.keys(a), ...Object.keys(b)])].find((each) => !isDeepStrictEqual(a[each], b[each]))
  return key === undefined ? `${path}: no difference` : difference(a[key], b[key], `${path}.${key}`)
}

async function situation(fixture: Fixture): Promise<string> {
  const { objects, vms } = await snapshotOf(fixture)
  return [JSON.stringify({ objects, vms }), ...fixture.lines.slice(-30)].join("\n")
}
