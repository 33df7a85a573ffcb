import type { ServerResponse } from "node:http"

/** Page of Berth's own on the host of a port. */
export interface Page {
  status: number
  title: string
  /** Sentences below the title. */
  text: string
}

const AGAIN = "Open the port once more: on the job's page in Berth's console, under Terminal and ports."

export const ENDED: Page = {
  status: 404,
  title: "No session is open at this address",
  text: `It has ended, or there was none. ${AGAIN}`,
}

export const NOT_ENTERED: Page = {
  status: 403,
  title: "This browser may not see the port",
  text: `A link to a port works once, in one browser. ${AGAIN}`,
}

export const FOREIGN: Page = {
  status: 403,
  title: "Another site has sent this request",
  text: "Berth passes on what the port's own pages send, and links that a person follows.",
}

export const INVALID: Page = {
  status: 400,
  title: "Berth can't pass this request on",
  text: "It passes on requests for paths of the port, and WebSockets.",
}

/** Returns the page about a port that does not answer. @param reason in words, without a full stop */
export function unreachable(reason: string): Page {
  return { status: 502, title: "The port does not answer", text: `${reason}. Reload this page to try again.` }
}

/** Answers with a page. It runs no script, and no other page shows it in a frame. */
export function showPage(res: ServerResponse, { status, title, text }: Page): void {
  const body = `<!doctype html><html lang="en"><meta charset="utf-8"><title>${asHtml(title)}</title><h1>${asHtml(title)}</h1><p>${asHtml(text)}</p></html>\n`
  res.writeHead(status, {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Length": Buffer.byteLength(body),
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
  })
  res.end(res.req.method === "HEAD" ? undefined : body)
}

function asHtml(text: string): string {
  return text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`)
}
