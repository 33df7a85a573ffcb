import type { StoredConnection } from "../core/apis/connection.ts"
import { byNamespace, NAMESPACE_INDEX } from "../core/identity/catch-up.ts"
import { SECRETS, type Secret } from "../core/kube/core.ts"
import type { ReflectorOptions } from "../core/kube/reflector.ts"
import { CONNECTIONS } from "../core/resources.ts"

/** The only type of Secret that a Connection may name. It keeps other Secrets of the namespace out of reach. */
export const CREDENTIALS_SECRET_TYPE = "berth.dev/connection"

/** Index of Connections by the Secret that they name, as `namespace/name`. */
export const SECRET_INDEX = "secret"

/** Options that the reflector of Connections must have. */
export const CONNECTION_CACHE: Pick<ReflectorOptions<StoredConnection>, "resource" | "indexes"> = {
  resource: CONNECTIONS,
  indexes: {
    [NAMESPACE_INDEX]: byNamespace,
    [SECRET_INDEX]: ({ metadata, spec }) =>
      spec.credentialsSecretRef === undefined ? [] : [`${metadata.namespace}/${spec.credentialsSecretRef.name}`],
  },
}

/** Options that the reflector of Secrets must have. They keep every other Secret out of this process's memory. */
export const CREDENTIALS_SECRET_CACHE: Pick<ReflectorOptions<Secret>, "resource" | "fieldSelector"> = {
  resource: SECRETS,
  fieldSelector: `type=${CREDENTIALS_SECRET_TYPE}`,
}
