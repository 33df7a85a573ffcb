import type { RequestOptions } from "node:https"
import type { KubeConfig } from "@kubernetes/client-node"

/** TLS settings that a kubeconfig can contain. */
export type TlsSettings = Pick<
  RequestOptions,
  "ca" | "cert" | "key" | "pfx" | "passphrase" | "rejectUnauthorized" | "servername"
>

/** Credentials of a connection and of a request. */
export interface Credentials {
  tls: TlsSettings
  /** Changes with `tls`. Connections with an earlier version must not be used any more. */
  tlsVersion: number
  /** Header names and values in turn. */
  headers: string[]
}

const TLS_KEYS = ["ca", "cert", "key", "pfx", "passphrase", "rejectUnauthorized", "servername"] as const

/** Delay before credentials are read again: certificate and token files rotate, tokens of an exec plugin expire. */
const REFRESH_SECONDS = 30

/** Up-to-date credentials of a kubeconfig: files, tokens, exec plugins, OIDC, in-cluster. */
export class CredentialSource {
  readonly #kubeConfig: KubeConfig
  #current: Credentials | undefined
  #freshUntil = 0
  #loading: Promise<Credentials> | undefined

  constructor(kubeConfig: KubeConfig) {
    this.#kubeConfig = kubeConfig
  }

  /** Returns the credentials. Rejects with the error of the exec plugin or the file system. */
  get(): Credentials | Promise<Credentials> {
    if (this.#current !== undefined && performance.now() < this.#freshUntil) return this.#current
    this.#loading ??= this.#load().finally(() => {
      this.#loading = undefined
    })
    return this.#loading
  }

  /** Clears the cache after the server has rejected the credentials. */
  invalidate(): void {
    this.#freshUntil = 0
  }

  async #load(): Promise<Credentials> {
    const options: RequestOptions = {}
    await this.#kubeConfig.applyToHTTPSOptions(options)
    const tls: TlsSettings = {}
    for (const key of TLS_KEYS) if (options[key] !== undefined) Object.assign(tls, { [key]: options[key] })
    const previous = this.#current
    const same = previous !== undefined && JSON.stringify(previous.tls) === JSON.stringify(tls)
    this.#current = {
      tls: same ? previous.tls : tls,
      tlsVersion: same ? previous.tlsVersion : (previous?.tlsVersion ?? 0) + 1,
      headers: headersOf(options),
    }
    this.#freshUntil = performance.now() + REFRESH_SECONDS * 1000
    return this.#current
  }
}

function headersOf(options: RequestOptions): string[] {
  const headers: string[] = []
  // A token file may end with a newline, which is not allowed in a header.
  for (const [name, value] of Object.entries(options.headers ?? {})) headers.push(name, String(value).trim())
  if (options.auth) headers.push("authorization", `Basic ${Buffer.from(options.auth).toString("base64")}`)
  return headers
}
