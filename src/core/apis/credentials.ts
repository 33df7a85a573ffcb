import type { TObject, TSchema } from "typebox"
import type { CredentialsDefinition } from "../../clouds/definition.ts"
import { DEFINITIONS } from "../../clouds/definitions.ts"
import type { ConnectionType } from "./connection.ts"
import type { FieldError } from "./field-error.ts"
import { findErrors } from "./validate.ts"

/**
 * Credentials of a connection, by its type. They are the fields of the REST API, of the encrypted form, and of a Secret in
 * credentialsSecretRef. No message contains a value: users sometimes paste a secret into the wrong field.
 */
export type CredentialFields = Readonly<Record<string, string>>

/** Fields that are secret. The others only identify the account. */
export const SECRET_FIELDS: readonly string[] = [
  ...new Set(
    Object.values(DEFINITIONS).flatMap(({ credentials: { fields } }) =>
      Object.entries(fields).flatMap(([field, shown]) => ("flag" in shown ? [] : [field])),
    ),
  ),
]

function credentialsOf(type: ConnectionType): CredentialsDefinition {
  return DEFINITIONS[type].credentials
}

/** Returns the forms of credentials that a type of connection accepts. The first is the contract's. */
export function formsOf(type: ConnectionType): readonly [TObject, ...TObject[]] {
  return credentialsOf(type).forms
}

/** Returns the schemas of all fields of a type of connection, of every form. */
export function credentialSchemasOf(type: ConnectionType): Record<string, TSchema> {
  return Object.assign({}, ...formsOf(type).map(({ properties }) => properties))
}

/** Returns the names of the fields of a type of connection, of every form. */
export function credentialFieldsOf(type: ConnectionType): string[] {
  return Object.keys(credentialSchemasOf(type))
}

/** Returns true if the fields are all fields of one form. */
export function isWholeForm(type: ConnectionType, fields: CredentialFields): boolean {
  return formsOf(type).some(({ properties }) => Object.keys(properties).every((field) => Object.hasOwn(fields, field)))
}

/** Returns every error: missing, unknown and malformed fields, and those that only the provider's definition finds. */
export function credentialErrors(type: ConnectionType, fields: Readonly<Record<string, unknown>>): FieldError[] {
  const { forms, formFor, errorsIn } = credentialsOf(type)
  const form = formFor?.((field) => Object.hasOwn(fields, field)) ?? forms[0]
  return [...findErrors(form, fields), ...(errorsIn?.(fields) ?? [])]
}

/** Fields that Berth adds to credentials of the other forms. No user can set them. */
export interface Federation {
  /** Subject of the identity tokens: the project and the connection. */
  identity_subject: string
  /** External id of AWS' AssumeRole. */
  external_id: string
}

/** Returns true if a cloud must trust Berth's identity token, or its external id. */
export function isFederated(type: ConnectionType, fields: CredentialFields): boolean {
  return credentialsOf(type).federation?.isUsed(fields) ?? false
}

/** Returns the audience that a cloud expects in identity tokens; undefined if it needs no token. */
export function audienceOf(type: ConnectionType, fields: CredentialFields): string | undefined {
  const { federation } = credentialsOf(type)
  return federation?.needsToken(fields) ? federation.audience(fields) : undefined
}

/** Returns the errors of credentials that this installation can't use, because it issues no identity tokens. */
export function identityTokenErrors(type: ConnectionType, fields: CredentialFields): FieldError[] {
  const { federation } = credentialsOf(type)
  if (!federation?.needsToken(fields)) return []
  const secret = federation.insteadOf
  const why = "this installation has no --identity-issuer, so it can't sign in without a secret"
  return [{ pointer: `/${secret}`, detail: `${secret} is required: ${why}` }]
}
