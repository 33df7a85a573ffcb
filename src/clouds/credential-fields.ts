import Type from "typebox"
import { LIMITS } from "../core/apis/field-limits.ts"
import { ALLOWED, SENSITIVE } from "../core/apis/schema.ts"
import type { CredentialField } from "./definition.ts"

/** Parts of the schemas of credentials that several providers share. */

/** Declares a value that becomes part of a provider's host name or path. The pattern prevents injection. */
export function Identifier(pattern: string, description: string, allowed: string) {
  return Type.String({
    minLength: 1,
    maxLength: LIMITS.credential,
    pattern,
    description,
    [ALLOWED]: allowed,
    [SENSITIVE]: true,
  })
}

export function Secret(description: string) {
  return Identifier("^[!-~]+$", description, "ASCII characters without spaces or line ends")
}

/** S3 key pair, of AWS or of Cloudflare R2. */
export const KEY_PAIR = {
  access_key_id: Identifier("^[!-~]+$", "Id of the access key.", "ASCII characters without spaces or line ends"),
  secret_access_key: Secret("Secret access key."),
}

export const KEY_PAIR_FIELDS = {
  access_key_id: { label: "Access key id", flag: "--access-key-id <id>", help: "id of the access key" },
  secret_access_key: { label: "Secret access key" },
} satisfies Record<string, CredentialField>

/** Name of a user at a registry of images. */
export function UserName(description: string) {
  return Identifier("^[A-Za-z0-9][-._A-Za-z0-9]*$", description, "letters, digits, -, _ and .")
}

/** Fields of a registry of images. */
export const REGISTRY_FIELDS = {
  username: { label: "User name", flag: "--username <name>", help: "user" },
  token: { label: "Access token" },
} satisfies Record<string, CredentialField>
