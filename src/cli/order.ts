import { allItems, type BerthClient, type JobRecord, readBody, type Schemas } from "../client/client.ts"
import { prerequisiteText } from "../client/job-grammar.ts"
import { isMissing } from "../client/jobs.ts"
import { submittedAfter } from "../client/resubmission.ts"
import { shown } from "./terminal.ts"

/** Order of jobs and arrays, as people read it. */

type Dependent = Schemas["Dependent"]

/** Job or array, by its id or name. */
export interface Ordered {
  kind: "job" | "array"
  id: string
}

function readDependents(
  client: BerthClient,
  { kind, id }: Ordered,
  query: { limit: number; offset: number },
): Promise<Schemas["DependentList"]> {
  const request = { params: { path: { id }, query } }
  return kind === "job"
    ? readBody(client.api.GET("/jobs/{id}/dependents", request))
    : readBody(client.api.GET("/arrays/{id}/dependents", request))
}

/** Returns all that waits for a job or an array, also through others. */
export function allDependents(client: BerthClient, of: Ordered): Promise<Dependent[]> {
  return allItems(
    (page) => readDependents(client, of, page),
    ({ dependents }) => dependents,
  )
}

/** Names in a line of text; the rest is counted. */
const SHOWN_NAMES = 5

/** Returns names of jobs and arrays in a line. @param total number of all */
export function namesText(named: readonly Pick<Dependent, "job" | "array">[], total = named.length): string {
  const names = named.slice(0, SHOWN_NAMES).map((one) => shown(prerequisiteText(one)))
  const rest = total - names.length
  return rest > 0 ? `${names.join(", ")} and ${rest} more` : names.join(", ")
}

/** Returns what must end before a job or an array, with a mark on what it waits for; empty for nothing. */
export function afterText({ after, waits_for }: Pick<JobRecord, "after" | "waits_for">): string {
  const waits = (waits_for ?? []).map(prerequisiteText)
  // An API of 0.1.0 has no such fields.
  const all = after ?? []
  return submittedAfter(all)
    .map(
      (one, index) => `${prerequisiteText(one)}${waits.includes(prerequisiteText(all[index] ?? {})) ? " (waits)" : ""}`,
    )
    .join(", ")
}

/** Returns what waits for a job or an array, by one request; empty for nothing, and for an API that has no order. */
export async function beforeText(client: BerthClient, of: Ordered): Promise<string> {
  try {
    const { dependents, total } = await readDependents(client, of, { limit: SHOWN_NAMES, offset: 0 })
    return namesText(dependents, total)
  } catch (error) {
    if (isMissing(error)) return ""
    throw error
  }
}
