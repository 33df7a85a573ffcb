import { setTimeout as sleep } from "node:timers/promises"
import { CLIENT_ID } from "../src/embedded/issuer.ts"

/**
 * Signs a person in as they would do it: a program asks for a device code, they open its page in a browser, type their
 * name and agree (RFC 8628). Resolves with the access token that the program gets.
 */
export async function signIn(issuer: string, name: string): Promise<string> {
  const code = await post<{ device_code: string; verification_uri_complete: string }>(`${issuer}/device/auth`, {
    client_id: CLIENT_ID,
    scope: "openid email",
  })
  await new Browser().agree(code.verification_uri_complete, { login: name, password: "any" })
  for (;;) {
    const answer = await post<{ access_token?: string; error?: string }>(`${issuer}/token`, {
      grant_type: "urn:ietf:params:oauth:grant-type:device_code",
      client_id: CLIENT_ID,
      device_code: code.device_code,
    })
    if (answer.access_token !== undefined) return answer.access_token
    if (answer.error !== "authorization_pending") throw new Error(`no token: ${JSON.stringify(answer)}`)
    await sleep(100)
  }
}

async function post<T>(url: string, form: Record<string, string>): Promise<T> {
  return (await (await fetch(url, { method: "POST", body: new URLSearchParams(form) })).json()) as T
}

/** As much of a browser as forms and cookies need. */
class Browser {
  readonly #cookies = new Map<string, string>()

  /** Opens a page and submits the form on it, again and again, until a page has none. */
  async agree(url: string, typed: Record<string, string>): Promise<void> {
    let page = await this.#open(url)
    for (let forms = 0; forms < 10; forms++) {
      const action = /<form[^>]*action="([^"]+)"/.exec(page.html)?.[1]
      if (action === undefined) return
      const hidden = [...page.html.matchAll(/<input type="hidden" name="([^"]+)" value="([^"]*)"/g)]
      const fields = Object.fromEntries(hidden.map(([, name = "", value = ""]) => [name, value]))
      const asked = Object.entries(typed).filter(([name]) => page.html.includes(`name="${name}"`))
      const body = new URLSearchParams({ ...fields, ...Object.fromEntries(asked) })
      page = await this.#open(new URL(action.replaceAll("&amp;", "&"), page.url).href, { method: "POST", body })
    }
    throw new Error("the forms don't end")
  }

  async #open(url: string, init: RequestInit = {}): Promise<{ url: string; html: string }> {
    const cookie = [...this.#cookies].map(([name, value]) => `${name}=${value}`).join("; ")
    const answer = await fetch(url, { ...init, redirect: "manual", headers: { cookie } })
    for (const line of answer.headers.getSetCookie()) {
      const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(line) ?? []
      this.#cookies.set(name, value)
    }
    const location = answer.headers.get("location")
    if (location !== null) return this.#open(new URL(location, url).href)
    return { url, html: await answer.text() }
  }
}
