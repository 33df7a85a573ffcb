import type { IncomingMessage, OutgoingHttpHeaders } from "node:http"

/** Headers as they came, without those of Node.js' own merging. */
export type Headers = IncomingMessage["headersDistinct"]

/** Headers of one connection (https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1), and those that proxies add. */
const DROPPED =
  /^(connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|forwarded|x-forwarded-.*|x-real-ip|berth-forwarded)$/

/** Port of a job, and its place for browsers. */
interface Place {
  /** Origin of the pages in the browser. */
  origin: string
  port: number
  /** Name of Berth's own cookie. */
  cookie: string
}

/**
 * Returns the headers of a request as the job gets them. The program sees what it would see through `berth forward`: a browser
 * at localhost. Programs such as Jupyter accept that host by default, and compare it with the page's origin. Pure.
 */
export function requestHeaders(headers: Headers, place: Place): OutgoingHttpHeaders {
  const { host: _host, cookie, ...others } = endToEnd(headers)
  const local = localOrigin(place.port)
  const moved = Object.fromEntries(
    ["origin", "referer"].flatMap((name) => {
      const values = others[name]
      return values === undefined ? [] : [[name, values.map((value) => moveTo(local, value, place.origin))]]
    }),
  )
  const kept = cookiesIn(cookie).filter(({ name }) => name !== place.cookie)
  return {
    ...others,
    ...moved,
    host: new URL(local).host,
    ...(kept.length > 0 && { cookie: kept.map(({ name, value }) => `${name}=${value}`).join("; ") }),
  }
}

/** Returns the headers of a job's response as the browser gets them: cookies of its host only, and its own addresses. Pure. */
export function responseHeaders(
  headers: Headers,
  { origin, port }: Pick<Place, "origin" | "port">,
): OutgoingHttpHeaders {
  const { location, "set-cookie": cookies, ...others } = endToEnd(headers)
  return {
    // The address of the page is known to few, and stays so.
    "referrer-policy": "same-origin",
    ...others,
    ...(location !== undefined && { location: location.map((value) => moveTo(origin, value, localOrigin(port)))[0] }),
    ...(cookies !== undefined && { "set-cookie": cookies.map(withoutDomain) }),
  }
}

function localOrigin(port: number): string {
  return new URL(`http://localhost:${port}`).origin
}

function moveTo(to: string, address: string, from: string): string {
  return address === from || address.startsWith(`${from}/`) ? to + address.slice(from.length) : address
}

function withoutDomain(cookie: string): string {
  return cookie
    .split(";")
    .filter((part, index) => index === 0 || !/^\s*domain\s*(=|$)/i.test(part))
    .join(";")
}

function endToEnd(headers: Headers): Record<string, string[]> {
  const named = (headers["connection"] ?? []).flatMap((value) => value.toLowerCase().split(/[\s,]+/))
  const kept = Object.entries(headers).flatMap(([name, values]) =>
    values === undefined || DROPPED.test(name) || named.includes(name) ? [] : [[name, values] as const],
  )
  return Object.fromEntries(kept)
}

/** Returns the cookies of a request. Pure. */
export function cookiesIn(values: readonly string[] = []): { name: string; value: string }[] {
  return values
    .flatMap((line) => line.split(";"))
    .map((pair) => pair.trim())
    .filter((pair) => pair !== "")
    .map((pair) => {
      const [name = "", ...value] = pair.split("=")
      return { name, value: value.join("=") }
    })
}
