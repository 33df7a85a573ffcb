import { describe, expect, test } from "vitest"
import { INSTALLATION, jobOf, launchOf } from "../../../test/harness/builders.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { ANNOTATIONS, API_VERSION } from "../../core/apis/meta.ts"
import { roundUsd } from "../../core/apis/money.ts"
import { monthOf, type StoredStatement, statementName } from "../../core/apis/statement.ts"
import { isCounted, monthlyCosts } from "../../market/placement/statements.ts"
import { decide, type StatementAction, type StatementObservation } from "./decide.ts"
import { STATEMENT_DEFAULTS } from "./settings.ts"

const NOW = new Date("2026-11-15T12:00:00Z")

function statementOf(month: string, status?: StoredStatement["status"]): StoredStatement {
  return {
    apiVersion: API_VERSION,
    kind: "Statement",
    metadata: {
      name: statementName("team", month),
      namespace: INSTALLATION.systemNamespace,
      uid: month,
      resourceVersion: "1",
      generation: 1,
      creationTimestamp: "2026-11-01T00:00:00Z",
    },
    spec: { namespace: "team", month },
    ...(status && { status }),
  }
}

function endedOf(costUsd: number, from = "2026-11-10T00:00:00Z", to = "2026-11-10T01:00:00Z"): StoredLaunch {
  const vm = { state: "terminated", id: "vm", createTime: from, terminationTime: to } as const
  return launchOf(jobOf(), 1, { status: { phase: "terminated", vm, costUsd } })
}

type Observed = Partial<Omit<StatementObservation, "launches">> & { launches?: readonly StoredLaunch[] }

function decideFor({ launches = [], ...changes }: Observed, now = NOW) {
  const observed = { statements: new Map(), launches: () => launches, ...changes }
  return decide(observed, now, STATEMENT_DEFAULTS)
}

const marked = (launch: StoredLaunch): StoredLaunch => ({
  ...launch,
  metadata: { ...launch.metadata, annotations: { [ANNOTATIONS.counted]: "2026-11" } },
})

const namesOf = (launches: readonly StoredLaunch[]) => launches.map(({ metadata }) => metadata.name)

describe("a project's Statements", () => {
  test("get the costs and the names of ended Launches in one write", () => {
    const launches = [endedOf(1), endedOf(2), endedOf(0)]
    expect(decideFor({ launches }).actions).toMatchObject([
      { do: "create", month: "2026-11", status: { spentUsd: 3, counted: namesOf(launches.slice(0, 2)) } },
    ])
  })

  test("count a Launch once, and forget its name with the next write after its mark", () => {
    const [one, two] = [endedOf(1), endedOf(2)]
    const before = statementOf("2026-11", { spentUsd: 1, counted: namesOf([one]) })
    const statements = new Map([["2026-11", before]])
    expect(decideFor({ statements, launches: [one] }).actions).toEqual([])
    expect(decideFor({ statements, launches: [marked(one)] }).actions).toEqual([])
    expect(decideFor({ statements, launches: [marked(one), two] }).actions).toMatchObject([
      { do: "writeStatus", status: { spentUsd: 3, counted: namesOf([two]) } },
    ])
  })

  test("collect for a while after a write", () => {
    const launches = [endedOf(1)]
    expect(decideFor({ launches, writtenSecondsAgo: 2 })).toEqual({ actions: [], requeueAfter: 3 })
    expect(decideFor({ launches, writtenSecondsAgo: 5 }).actions).toHaveLength(1)
  })

  test("split a VM at the end of each month", () => {
    const launch = endedOf(30, "2026-10-31T12:00:00Z", "2026-12-01T12:00:00Z")
    const days = 31
    const costs = monthlyCosts(launch)
    expect(costs.map(({ month }) => month)).toEqual(["2026-10", "2026-11", "2026-12"])
    for (const [index, usd] of [15 / days, 900 / days, 15 / days].entries())
      expect(costs[index]?.usd).toBeCloseTo(usd, 5)
    expect(roundUsd(costs.reduce((total, { usd }) => total + usd, 0))).toBe(30)
    expect(costs.map(({ days: own }) => [own.length, own[0]?.day])).toEqual([
      [1, "2026-10-31"],
      [30, "2026-11-01"],
      [1, "2026-12-01"],
    ])
    const { actions } = decideFor({ launches: [launch] }, new Date("2026-12-02T00:00:00Z"))
    expect(actions.map((action) => action.do === "create" && action.month)).toEqual(["2026-10", "2026-11", "2026-12"])
  })

  test("keep 100 labels apart", () => {
    const launches = Array.from({ length: 103 }, (_, n) => {
      const launch = endedOf(1)
      return { ...launch, spec: { ...launch.spec, labels: { run: `${n}` } } }
    })
    const [action] = decideFor({ launches }).actions
    const status = action?.do === "create" ? action.status : {}
    expect([status.byLabel?.length, status.otherLabelsUsd, status.spentUsd]).toEqual([100, 3, 103])
  })

  test("are kept for 13 months after their own", () => {
    const statements = new Map(
      ["2025-09", "2025-10", "2026-11"].map((month) => [month, statementOf(month, { spentUsd: 1 })]),
    )
    expect(decideFor({ statements })).toMatchObject({
      actions: [{ do: "delete", statement: { spec: { month: "2025-09" } } }],
      requeueAfter: 24 * 3600,
    })
  })

  test.each(Array.from({ length: 20 }, (_, seed) => seed))(
    "add up to the cost of all Launches, with crashes between any two writes: seed %i",
    (seed) => {
      const random = randomOf(seed)
      const world = new World(random)
      for (let step = 0; step < 200; step++) world.step()
      world.finish()
      expect(world.total()).toBe(world.billed)
    },
  )
})

/** Returns a generator of numbers in [0, 1) that depend only on the seed. */
function randomOf(seed: number): () => number {
  let state = seed * 2_654_435_761 + 1
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}

/** API server, and the actions of both controllers in any order. A crash is a decision of which only a part is done. */
class World {
  readonly #random: () => number
  #launches: StoredLaunch[] = []
  readonly #statements = new Map<string, StoredStatement>()
  billed = 0

  constructor(random: () => number) {
    this.#random = random
  }

  step(): void {
    const draw = this.#random()
    if (draw < 0.4) this.#end()
    else if (draw < 0.6) this.#count(this.#random() < 0.5)
    else if (draw < 0.9) this.#release()
    else this.#launches = this.#launches.filter((launch) => launch.metadata.finalizers?.length)
  }

  /** Lets both controllers do everything that is left. */
  finish(): void {
    for (let round = 0; round < 300; round++) {
      this.#count(false)
      this.#release()
    }
    expect(this.#launches.every((launch) => launch.metadata.finalizers?.length === 0)).toBe(true)
  }

  total(): number {
    return roundUsd([...this.#statements.values()].reduce((total, { status }) => total + (status?.spentUsd ?? 0), 0))
  }

  #end(): void {
    const day = (month: number) => new Date(Date.UTC(2026, month, 1 + Math.floor(this.#random() * 28))).toISOString()
    const [from, to] = [day(9), day(9 + Math.floor(this.#random() * 3))].sort()
    const launch = endedOf(roundUsd(this.#random() * 10), from, to)
    this.billed = roundUsd(this.billed + (launch.status?.costUsd ?? 0))
    this.#launches.push(launch)
  }

  #count(crashes: boolean): void {
    const { actions } = decideFor(
      { launches: this.#launches, statements: this.#statements },
      new Date("2026-12-31T00:00:00Z"),
    )
    const done = crashes ? actions.slice(0, Math.floor(this.#random() * (actions.length + 1))) : actions
    for (const action of done) this.#write(action, crashes)
  }

  #write(action: StatementAction, crashes: boolean): void {
    if (action.do === "delete") throw new Error(`${monthOf(NOW)} is not over for long`)
    const month = action.do === "create" ? action.month : action.statement.spec.month
    // A crash between the creation and its status.
    const isHalf = action.do === "create" && crashes && this.#random() < 0.5
    this.#statements.set(month, statementOf(month, isHalf ? undefined : action.status))
  }

  #release(): void {
    const index = Math.floor(this.#random() * this.#launches.length)
    const launch = this.#launches[index]
    if (launch === undefined || !isCounted(launch, (_, month) => this.#statements.get(month))) return
    const { metadata } = marked(launch)
    this.#launches[index] = { ...launch, metadata: { ...metadata, finalizers: [] } }
  }
}
