import { dump } from "js-yaml"
import { API_KEY, type ApiKeySpec, type Role } from "../apis/apikey.ts"
import { API_VERSION } from "../apis/meta.ts"
import { toMetadataName } from "../apis/names.ts"
import { makeApiKey } from "./apikeys.ts"

/** A key that shall be declared as a manifest. */
export interface KeyRequest {
  /** Its name in the REST API. */
  name: string
  role: Role
  /** Absent: whatever namespace the manifest is applied to. */
  namespace?: string | undefined
  /** RFC 3339. */
  expiresAt?: string | undefined
}

/** A new key: the value for its owner, and the manifest for a repository, which holds only the value's hash. */
export interface DeclaredKey {
  value: string
  /** YAML. */
  manifest: string
}

/** Makes a key for GitOps, from the system's random numbers. @throws RangeError when nothing can have this name */
export function declareKey({ name, role, namespace, expiresAt }: KeyRequest): DeclaredKey {
  const metadataName = toMetadataName(name)
  if (metadataName === undefined) throw new RangeError(`no key can be called ${JSON.stringify(name)}`)
  const { value, keyId, tokenHash } = makeApiKey()
  const spec: ApiKeySpec = { role, keyId, tokenHash, ...(expiresAt !== undefined && { expiresAt }) }
  const metadata = { name: metadataName, ...(namespace !== undefined && { namespace }) }
  return { value, manifest: dump({ apiVersion: API_VERSION, kind: API_KEY.kind, metadata, spec }) }
}
