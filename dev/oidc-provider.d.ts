/** The used part of oidc-provider, which has no types of its own. */
declare module "oidc-provider" {
  import type { IncomingMessage, RequestListener, ServerResponse } from "node:http"

  /** An account's consent to the rights of a client. */
  export interface Grant {
    addOIDCScope(scope: string): void
    addResourceScope(resource: string, scope: string): void
    save(): Promise<string>
  }

  /** Koa's context, with the provider's state of the request. */
  export interface OidcContext {
    type: string
    body: string
    oidc: {
      provider: Provider
      client: { clientId: string }
      session: { accountId: string }
      /** Parameters of the request. */
      params?: Record<string, unknown>
      result?: { login?: object }
    }
  }

  export default class Provider {
    /** @see https://github.com/panva/node-oidc-provider/blob/main/docs/README.md for the configuration */
    constructor(issuer: string, configuration: object)
    readonly Grant: new (of: {
      accountId: string
      clientId: string
    }) => Grant
    callback(): RequestListener
    /** Rejects if no sign-in is in progress in this browser. */
    interactionDetails(req: IncomingMessage, res: ServerResponse): Promise<{ uid: string }>
    interactionFinished(req: IncomingMessage, res: ServerResponse, result: object): Promise<void>
  }

  export namespace interactionPolicy {
    class Check {
      constructor(reason: string, description: string, check: (context: OidcContext) => boolean)
    }
    function base(): { get(prompt: string): { checks: { add(check: Check): void; remove(reason: string): void } } }
  }
}

declare module "oidc-provider/lib/adapters/memory_adapter.js" {
  /** Creates a store in memory for one provider. */
  export function createMemoryAdapter(): (model: string) => object
}
