import type { Schemas } from "../../client/client.ts"
import { PROVIDERS } from "../../client/providers.ts"
import { Field, onText } from "./basics.tsx"

type Type = Schemas["ConnectionRecord"]["type"]

/** Field of the credentials of a connection. */
export interface Credential {
  name: string
  label: string
  isSecret?: boolean
  isOptional?: boolean
  isLong?: boolean
}

/** Returns the fields of a type of connection. */
export function credentialsOf(type: Type): Credential[] {
  const { fields, forms } = PROVIDERS[type]
  return Object.entries(fields).map(([name, { label, flag, format }]) => ({
    name,
    label: format === undefined ? label : `${label} (${format})`,
    isSecret: flag === undefined,
    isOptional: !forms.every((form) => form.includes(name)),
    isLong: format !== undefined,
  }))
}

interface CredentialInputProps extends Credential {
  value: string
  set: (value: string) => void
}

export function CredentialInput({ name, label, isSecret, isOptional, isLong, value, set }: CredentialInputProps) {
  const input = { spellcheck: false, required: !isOptional, value, onInput: onText(set) }
  return (
    <Field label={label} name={name}>
      {isLong ? (
        <textarea rows={3} {...input} />
      ) : (
        <input {...(isSecret && { type: "password" })} autocomplete="off" {...input} />
      )}
    </Field>
  )
}
