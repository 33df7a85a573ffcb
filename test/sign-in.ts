import { CLIENT_ID } from "../dev/issuer.ts"
import { login } from "../src/core/identity/login.ts"

/** Signs a person in as in a browser: enters the name and agrees. Resolves with the token. */
export async function signIn(issuer: string, name: string, browser = new Browser()): Promise<string> {
  const shown = Promise.withResolvers<string>()
  const token = login({
    issuer,
    clientId: CLIENT_ID,
    signal: AbortSignal.timeout(120_000),
    prompt: (address) => shown.resolve(address),
  })
  await Promise.race([token, shown.promise])
  await browser.agree(await shown.promise, { login: name })
  return token
}

/** Part of a browser that forms and cookies need. */
export class Browser {
  readonly #cookies = new Map<string, string>()
  /** Pages that were shown, the latest last. */
  readonly pages: string[] = []

  /** Opens a page and submits its form, and repeats this until a page has none. Returns that page's address. */
  async agree(url: string, typed: Record<string, string>): Promise<string> {
    let page = await this.#open(url)
    for (let forms = 0; forms < 10; forms++) {
      const action = /<form[^>]*action="([^"]+)"/.exec(page.html)?.[1]
      if (action === undefined) return page.url
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
    const html = await answer.text()
    this.pages.push(html)
    return { url, html }
  }
}
