import { type ArrayRecord, readArray } from "../client/arrays.ts"
import type { BerthClient, JobRecord } from "../client/client.ts"
import { isMissing, readJob } from "../client/jobs.ts"
import type { Call } from "./command.ts"
import { EXIT, Failure, usageError } from "./exit.ts"
import type { Submitted } from "./last.ts"

/** Job or array that a command is about. */
export type Target = { kind: "job"; job: JobRecord } | { kind: "array"; array: ArrayRecord }

/** Argument of commands that take a job or an array, and by default what was submitted last from here. */
export const TARGET = "[job-or-array]"

/**
 * Returns the job or array that the first argument names. Without an argument it is the one that was submitted last from
 * here, and a line says which. A job comes before an array of the same name. @throws Failure if there is none
 */
export async function findTarget(call: Call<unknown>, client: BerthClient): Promise<Target> {
  const [name] = call.args
  if (name !== undefined) return findByName(client, name)
  const { kind, name: last } = lastOf(call)
  try {
    if (kind === "array") return { kind, array: await readArray(client, last, call.signal) }
    return { kind, job: await readJob(client, last, call.signal) }
  } catch (error) {
    if (!isMissing(error)) throw error
    throw new Failure(EXIT.notFound, `The last ${kind} from here, ${last}, is deleted. Name another: \`berth ps -a\`.`)
  }
}

/** Returns the job or array with this id or name. @throws Failure if there is none */
export async function findByName(client: BerthClient, name: string): Promise<Target> {
  try {
    return { kind: "job", job: await readJob(client, name) }
  } catch (error) {
    if (!isMissing(error)) throw error
  }
  const array = await arrayNamed(client, name)
  if (array !== undefined) return { kind: "array", array }
  throw new Failure(EXIT.notFound, `There is no job and no array with the id or name "${name}".`)
}

/** Returns the array with this id or name; undefined if there is none. */
export async function arrayNamed(client: BerthClient, name: string): Promise<ArrayRecord | undefined> {
  try {
    return await readArray(client, name)
  } catch (error) {
    if (!isMissing(error)) throw error
    return undefined
  }
}

/** Returns the name of an array, by default of the one that was submitted last from here. @throws Failure */
export function arrayNameOf(call: Call<unknown>): string {
  const [name] = call.args
  if (name !== undefined) return name
  const last = lastOf(call)
  if (last.kind === "array") return last.name
  throw usageError(
    `The last submission from here is the job ${last.name}, and no array. Name one of \`berth array ls\`.`,
  )
}

/** Returns the name of the job that was submitted last from here. @throws Failure */
export function lastJob(call: Call<unknown>): string {
  const last = lastOf(call)
  if (last.kind === "job") return last.name
  throw usageError(`The last submission from here is the array ${last.name}: berth array wait ${last.name}`)
}

/** Returns the last submission from here, and says which it is. @throws Failure if there is none */
function lastOf(call: Call<unknown>): Submitted {
  const last = call.last()
  if (last === undefined)
    throw usageError("Nothing was submitted from here yet: name a job or an array. `berth ps -a` lists the jobs.")
  call.terminal.progress(call.terminal.noted("dim", `The last ${last.kind} from here: ${last.name}`))
  return last
}
