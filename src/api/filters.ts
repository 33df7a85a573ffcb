import { quote } from "../core/apis/field-error.ts"
import { choice, filter, type Query, type QueryParameter, repeatedFilter, time } from "./http/query.ts"

/** Parameter of the form `key:value` or `key=value`, split at the first of the two signs. */
const LABELS: QueryParameter<{ key: string; value: string }[]> = {
  schema: { type: "array", items: { type: "string", pattern: "^([^:=]+[:=]|$)" } },
  description: "key:value or key=value. Empty: any.",
  read: (query: Query, name) =>
    query.all(name).flatMap((label) => {
      if (label === "") return []
      const separator = label.search(/[:=]/)
      if (separator > 0) return [{ key: label.slice(0, separator), value: label.slice(separator + 1) }]
      query.error(name, `must be key:value or key=value, not ${quote(label)}`)
      return []
    }),
}

const NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
const PREREQUISITE = new RegExp(`^(array/)?${NAME}$`)

/** Declares a filter by a prerequisite: a job's name, or `array/NAME`. @param what such as `Jobs` */
export function prerequisite(what: string): QueryParameter<string | undefined> {
  return {
    schema: { type: "string", pattern: `^((array/)?${NAME})?$` },
    description: `${what} that name this job, or array/NAME, in after. Empty: any.`,
    read: (query, name) => {
      const text = query.one(name)
      if (text === undefined || text === "") return undefined
      if (!PREREQUISITE.test(text)) query.error(name, `must be the name of a job, or array/NAME, not ${quote(text)}`)
      return text
    },
  }
}

/** Declares the parameters that select jobs or arrays in a list. @param what such as `Jobs` */
export function filters<const Status extends string>(what: string, statuses: readonly Status[]) {
  return {
    status: choice(statuses),
    tag: repeatedFilter(),
    label: LABELS,
    name_prefix: filter("Start of the name. Empty: any."),
    name_contains: filter("Part of the name. Empty: any."),
    created_after: time(`${what} created at this time or later.`),
    created_before: time(`${what} created before this time.`),
    ended_after: time(`${what} that ended at this time or later.`),
    ended_before: time(`${what} that ended before this time.`),
  }
}
