import { dump } from "js-yaml"
import { API_KEY, type ApiKeySpec, type Role } from "../apis/apikey.ts"
import { defined } from "../apis/defined.ts"
import { API_VERSION } from "../apis/meta.ts"
import { toMetadataName } from "../apis/names.ts"
import { makeApiKey } from "./apikeys.ts"

/** Request for a key that is declared as a manifest. */
export interface KeyRequest {
  /** Name of the key in the REST API. */
  name: string
  role: Role
  /** Absent: the namespace that the manifest is applied to. */
  namespace?: string | undefined
  /** RFC 3339. */
  expiresAt?: string | undefined
}

/** New key: the value for its owner, and the manifest for a repository. The manifest has only the value's hash. */
export interface DeclaredKey {
  value: string
  /** YAML. */
  manifest: string
}

/** Creates a key for GitOps, from the system's random numbers. @throws RangeError if no object can have this name */
export function declareKey({ name, role, namespace, expiresAt }: KeyRequest): DeclaredKey {
  const metadataName = toMetadataName(name)
  if (metadataName === undefined) throw new RangeError(`${JSON.stringify(name)} is not a valid name of a key`)
  const { value, keyId, tokenHash } = makeApiKey()
  const spec: ApiKeySpec = { role, keyId, tokenHash, ...defined({ expiresAt }) }
  const metadata = { name: metadataName, ...defined({ namespace }) }
  return { value, manifest: dump({ apiVersion: API_VERSION, kind: API_KEY.kind, metadata, spec }) }
}
