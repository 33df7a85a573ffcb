import { randomBytes } from "node:crypto"
import type { IncomingMessage, OutgoingHttpHeaders, RequestListener, ServerResponse } from "node:http"
import { type Forwarder, isForwarded, type Upgrade } from "../forward.ts"
import type { SessionLeases } from "../lease.ts"
import type { Session } from "../session.ts"
import { labelIn } from "./hosts.ts"
import { ENDED, FOREIGN, INVALID, NOT_ENTERED, showPage, unreachable } from "./pages.ts"
import { passRequest, passUpgrade, responseOn } from "./proxy.ts"
import { OWN_PATH, PortSite } from "./site.ts"

export interface PortSitesOptions {
  /** Domain whose subdomains are ports. */
  domain: string
  leases: Pick<SessionLeases, "holderOfLabel">
  forwarder: Forwarder
}

/** Ports of jobs that browsers reach, each as a site of its own. A page of a job can't read what Berth's own pages have. */
export class PortSites {
  readonly domain: string
  readonly #options: PortSitesOptions
  readonly #held = new Map<string, PortSite>()

  constructor(options: PortSitesOptions) {
    this.domain = options.domain
    this.#options = options
  }

  /** Returns a label that can't be guessed. The ids of sessions can be listed by viewers. */
  newLabel(): string {
    return randomBytes(16).toString("hex")
  }

  /**
   * Opens the site of a session at this replica until it ends, and returns the link that works once.
   * @param base address at which the caller has reached Berth: scheme and port are those of the site
   */
  open(
    session: Pick<Session, "connect" | "ended">,
    { label, port }: { label: string; port: number },
    base: URL,
  ): string {
    const address = new URL(base)
    address.hostname = `${label}.${this.domain}`
    const site = new PortSite({ session, port, origin: address.origin })
    this.#held.set(label, site)
    void session.ended.then(() => {
      this.#held.delete(label)
      site.close()
    })
    return site.link
  }

  /** Returns true if a request is for the host of a port. */
  has({ headers: { host } }: IncomingMessage): boolean {
    return labelIn(host, this.domain) !== undefined
  }

  /** Handles a request to the host of a port. */
  readonly handle: RequestListener = (req, res) => {
    const found = this.#find(req)
    if ("site" in found) return this.#serve(found.site, req, res)
    if (found.holder === undefined) return showPage(res, ENDED)
    const onError = (): void => showPage(res, unreachable("its replica of Berth does not answer"))
    this.#options.forwarder.request(found.holder, { req, res, onError })
  }

  /** Handles an upgrade on the host of a port. */
  async upgrade(upgrade: Upgrade): Promise<void> {
    const { req, socket } = upgrade
    const found = this.#find(req)
    if ("holder" in found) {
      if (found.holder !== undefined) return await this.#options.forwarder.upgrade(found.holder, upgrade)
      return showPage(responseOn(req, socket), ENDED)
    }
    const refusal = refusalOf(found.site, req)
    if (refusal !== undefined || req.headers.upgrade?.toLowerCase() !== "websocket")
      return showPage(responseOn(req, socket), refusal ?? INVALID)
    passUpgrade(found.site, upgrade)
  }

  #find(req: IncomingMessage): { site: PortSite } | { holder: string | undefined } {
    const label = labelIn(req.headers.host, this.domain) ?? ""
    const site = this.#held.get(label)
    if (site !== undefined) return { site }
    return { holder: isForwarded(req) ? undefined : this.#options.leases.holderOfLabel(label) }
  }

  #serve(site: PortSite, req: IncomingMessage, res: ServerResponse): void {
    const cookie = site.enter(req)
    const refusal = cookie === undefined ? refusalOf(site, req) : undefined
    if (refusal !== undefined) showPage(res, refusal)
    // The link's token stays in no address, no Referer and no history.
    else if (cookie !== undefined) toStart(res, { "Set-Cookie": cookie })
    else if (req.url?.startsWith(OWN_PATH)) toStart(res)
    else passRequest(site, req, res)
  }
}

function toStart(res: ServerResponse, headers: OutgoingHttpHeaders = {}): void {
  res.writeHead(303, { Location: "/", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer", ...headers }).end()
}

/** Returns the page for a request that is not passed on; undefined for one that is. */
function refusalOf(site: PortSite, req: IncomingMessage) {
  if (!site.admits(req.headersDistinct)) return NOT_ENTERED
  if (site.isForeign(req, req.headersDistinct)) return FOREIGN
  return req.url?.startsWith("/") ? undefined : INVALID
}
