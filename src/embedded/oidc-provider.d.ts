/** The part of oidc-provider that is used here; it comes without types. */
declare module "oidc-provider" {
  import type { RequestListener } from "node:http"

  export default class Provider {
    /** @see https://github.com/panva/node-oidc-provider/blob/main/docs/README.md for the configuration */
    constructor(issuer: string, configuration: object)
    callback(): RequestListener
  }
}
