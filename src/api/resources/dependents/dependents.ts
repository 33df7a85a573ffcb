import Type, { type Static } from "typebox"
import type { StoredJob } from "../../../core/apis/job.ts"
import type { StoredJobArray } from "../../../core/apis/jobarray.ts"
import { prerequisiteText } from "../../../core/apis/prerequisites.ts"
import { isDependent } from "../../../core/order/waiting.ts"
import { NAME_FIELDS, nameFields } from "../../../core/records/order.ts"
import type { Collection } from "../../collection.ts"
import { namedSchema, type PageOf, pageSchema } from "../../http/json-schema.ts"
import { toProblem, unauthorized, unavailable } from "../../http/problem.ts"
import { flag, type Page, withinBytes } from "../../http/query.ts"
import { dependentsOf, type OrderedObject, type OrderStores } from "../../order.ts"
import { hasEnded, withCancel } from "../arrays/translate.ts"
import { Allowance, type AllowanceOptions, BUDGET_SECONDS, onEach } from "../jobs/allowance.ts"
import type { Jobs } from "../jobs/jobs.ts"

/** Dependents of a job or an array: all that waits for it, in lists and in cancellations. */

const DependentSchema = Type.Object(
  {
    ...NAME_FIELDS,
    id: Type.String({ description: "UUID." }),
    direct: Type.Boolean({ description: "True: it waits for the job or array itself. False: for another dependent." }),
  },
  { description: "Job or array that has not started, because it waits." },
)
export type Dependent = Static<typeof DependentSchema>

/** Response of GET /jobs/{id}/dependents and GET /arrays/{id}/dependents. */
export type DependentList = PageOf<"dependents", Dependent>

export const DEPENDENTS = pageSchema("DependentList", "dependents", namedSchema("Dependent", DependentSchema))

/** Parameter of a cancellation. */
export const WITH_DEPENDENTS = flag(
  "true: first cancel all that waits for it, as GET …/dependents lists it, so that nothing starts.",
  false,
)

export interface DependentsOptions {
  stores: OrderStores
  jobs: Jobs
  arrays: Collection<StoredJobArray>
}

/** Dependents in one project. */
export class Dependents {
  readonly #options: DependentsOptions

  constructor(options: DependentsOptions) {
    this.#options = options
  }

  /** Returns a page of all that waits for an object, also through others: direct dependents first, then by name. */
  list(one: OrderedObject, page: Page): DependentList {
    const all = dependentsOf(this.#options.stores, one)
      .flat()
      .map((other) => ({ other, text: prerequisiteText(other.name), direct: isDependent(other, one) }))
      .sort((a, b) => Number(b.direct) - Number(a.direct) || (a.text < b.text ? -1 : 1))
    const shown = all
      .slice(page.offset, page.offset + page.limit)
      .map(({ other, direct }) => ({ ...nameFields(other.name), id: other.object.metadata.uid, direct }))
    const fitting = withinBytes(shown, page)
    return { dependents: fitting.records, total: all.length, ...fitting.page }
  }

  /**
   * Cancels all that waits for an object. What waits for a dependent is cancelled before it, so nothing starts.
   * @throws Problem 503 if the time was too short: a repetition continues; 401 if the credentials became invalid
   */
  async cancel(one: OrderedObject, options: AllowanceOptions): Promise<void> {
    const { stores, jobs, arrays } = this.#options
    await Promise.all([jobs.caughtUp(), arrays.caughtUp()])
    const groups = dependentsOf(stores, one)
    const run = new DependentsRun(this.#options, new Allowance(options))
    for (const group of groups) {
      await onEach(
        group,
        () => run.isOver(),
        (dependent) => run.cancel(dependent),
      )
    }
    await run.end(prerequisiteText(one.name), groups.flat().length)
  }
}

/** State of one cancellation. */
class DependentsRun {
  readonly #options: DependentsOptions
  readonly #allowance: Allowance
  #cancelled = 0
  #newest: StoredJob | undefined
  #fault: unknown

  constructor(options: DependentsOptions, allowance: Allowance) {
    this.#options = options
    this.#allowance = allowance
  }

  async isOver(): Promise<boolean> {
    return (await this.#allowance.isOver()) || this.#fault !== undefined
  }

  async cancel({ name, object }: OrderedObject): Promise<void> {
    try {
      if (name.job === undefined) await this.#cancelArray(object as StoredJobArray)
      else this.#newest = await this.#options.jobs.cancelFound(object as StoredJob)
      this.#cancelled++
    } catch (error) {
      // It has just ended or was deleted, so it starts no more.
      if ([404, 409].includes(toProblem(error).status)) this.#cancelled++
      else this.#fault = error
    }
  }

  #cancelArray({ metadata }: StoredJobArray): Promise<StoredJobArray> {
    return this.#options.arrays.change(metadata.uid, (array) => (hasEnded(array) ? undefined : withCancel(array)))
  }

  /** @throws Problem if dependents are left */
  async end(name: string, total: number): Promise<void> {
    const count = `${this.#cancelled} of the ${total} dependents of ${name}`
    if (this.#fault !== undefined) throw this.#fault
    if (this.#allowance.isInvalid) throw unauthorized(`The credentials are no longer valid. ${count} were cancelled.`)
    if (this.#cancelled < total) {
      throw unavailable(`${count} were cancelled in ${BUDGET_SECONDS} seconds, and ${name} was not: try again.`)
    }
    // Lists show the cancellations after the response.
    if (this.#newest !== undefined) await this.#options.jobs.waitForCache(this.#newest)
  }
}
