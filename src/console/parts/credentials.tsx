import type { Schemas } from "../../client/client.ts"
import { Field, typed } from "./basics.tsx"

type Type = Schemas["ConnectionRecord"]["type"]

/** Field of the credentials of a connection. */
export interface Credential {
  name: string
  label: string
  isSecret?: boolean
  isOptional?: boolean
  isLong?: boolean
}

/** Fields of each type of connection. */
export const TYPES: Record<Type, { title: string; fields: readonly Credential[] }> = {
  aws: {
    title: "AWS",
    fields: [
      { name: "role_arn", label: "Role (ARN), instead of a key", isOptional: true },
      { name: "access_key_id", label: "Access key id", isOptional: true },
      { name: "secret_access_key", label: "Secret access key", isSecret: true, isOptional: true },
    ],
  },
  gcp: {
    title: "Google Cloud",
    fields: [
      { name: "gcp_project_id", label: "Project id" },
      { name: "keyfile_json", label: "Key file (JSON)", isSecret: true, isLong: true, isOptional: true },
      { name: "service_account", label: "Service account, instead of a key file", isOptional: true },
      { name: "workload_identity_provider", label: "Its workload identity provider", isOptional: true },
    ],
  },
  azure: {
    title: "Azure",
    fields: [
      { name: "subscription_id", label: "Subscription id" },
      { name: "tenant_id", label: "Tenant id" },
      { name: "client_id", label: "Client id" },
      { name: "client_secret", label: "Client secret", isSecret: true, isOptional: true },
    ],
  },
  cloudflare: {
    title: "Cloudflare R2",
    fields: [
      { name: "account_id", label: "Account id" },
      { name: "access_key_id", label: "Access key id" },
      { name: "secret_access_key", label: "Secret access key", isSecret: true },
    ],
  },
  dockerhub: {
    title: "Docker Hub",
    fields: [
      { name: "username", label: "User name" },
      { name: "token", label: "Access token", isSecret: true },
    ],
  },
  github: {
    title: "GitHub (images)",
    fields: [
      { name: "username", label: "User name" },
      { name: "token", label: "Access token", isSecret: true },
    ],
  },
}

interface CredentialInputProps extends Credential {
  value: string
  set: (value: string) => void
}

export function CredentialInput({ name, label, isSecret, isOptional, isLong, value, set }: CredentialInputProps) {
  const input = { spellcheck: false, required: !isOptional, value, onInput: typed(set) }
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
