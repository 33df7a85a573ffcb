import type { Schemas } from "./client.ts"

export type ConnectionCheck = Schemas["ConnectionCheck"]

const TITLES: Record<ConnectionCheck["result"], string> = {
  passed: "Passed",
  incomplete: "Incomplete",
  refused: "Refused",
  unreachable: "Unreachable",
  unusable: "Not checked",
  unfinished: "Not finished",
}

/** Returns the result of a check in sentences. The uses of the account have their own. */
export function checkTexts({ result, message, missing_permissions: missing }: ConnectionCheck): string[] {
  return [
    `${TITLES[result]}: ${message}.`,
    ...(missing.length === 0 ? [] : [`Missing permissions: ${missing.join(", ")}.`]),
  ]
}

/** Field of the credentials of a connection. */
export interface CredentialField {
  label: string
  /** Flag of the command line, such as `--account-id <id>`. Absent: the field is secret. */
  flag?: string
  /** Description of the flag. */
  help?: string
  /** Format of a long text, such as JSON. */
  format?: string
}

/** Provider of accounts, as people see it. */
export interface Provider {
  /** Name, such as AWS. */
  label: string
  /** Names of the fields that make complete credentials together. The first form is the usual one. */
  forms: readonly (readonly string[])[]
  /** Fields of all forms, in the order in which people enter them. */
  fields: Readonly<Record<string, CredentialField>>
}

/** Returns the form that these fields are part of; the usual one if there is none. */
export function formFor({ forms }: Provider, given: readonly string[]): readonly string[] {
  return forms.find((form) => given.every((field) => form.includes(field))) ?? forms[0] ?? []
}
