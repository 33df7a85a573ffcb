import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { scrubbed, scrubbedError } from "./scrub.ts"

const SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
const AWS = { access_key_id: "AKIAIOSFODNN7EXAMPLE", secret_access_key: SECRET }
const KEY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
const keyfile = JSON.stringify({
  type: "service_account",
  private_key_id: "0123456789abcdef",
  private_key: `-----BEGIN PRIVATE KEY-----\n${KEY}\nshort=\n-----END PRIVATE KEY-----\n`,
  client_email: "berth@acme-1.iam.gserviceaccount.com",
})
const GCP = { gcp_project_id: "acme-1", keyfile_json: keyfile }

describe("a provider's message", () => {
  it.each([
    ["the secret", `denied: ${SECRET}.`, "denied: [redacted]."],
    ["its beginning", `denied: ${SECRET.slice(0, 12)}...`, "denied: [redacted]..."],
    ["its end", `...${SECRET.slice(-9)} is wrong`, "...[redacted] is wrong"],
    ["two pieces of it", `${SECRET.slice(3, 13)} ${SECRET.slice(20, 31)}`, "[redacted] [redacted]"],
    ["it in a URL", `?key=${encodeURIComponent(SECRET)}&x=1`, "?key=[redacted]&x=1"],
    ["the id of the key", `key ${AWS.access_key_id} is gone`, "key [redacted] is gone"],
    ["nothing of it", "throttled: slow down", "throttled: slow down"],
  ])("with %s", (_what, message, expected) => expect(scrubbed(message, AWS)).toBe(expected))

  it("with the secret in whatever is base64 or hex, wherever it begins there", () => {
    const around = fc.string({ maxLength: 12 })
    const encoding = fc.constantFrom<BufferEncoding>("base64", "base64url", "hex")
    fc.assert(
      fc.property(around, around, encoding, (before, after, spelled) => {
        const clean = scrubbed(Buffer.from(`${before}${SECRET}${after}`).toString(spelled), AWS)
        expect(clean).toContain("[redacted]")
        expect(Buffer.from(clean.replaceAll("[redacted]", ""), spelled).toString()).not.toContain(SECRET.slice(4, 12))
      }),
    )
  })

  it("with a key file loses the key and keeps what tells the account", () => {
    const clean = scrubbed(`can't parse ${keyfile}: ${JSON.stringify(keyfile)}`, GCP)
    for (const secret of [KEY, KEY.slice(8, 24), "0123456789abcdef"]) expect(clean).not.toContain(secret)
    expect(clean).toContain("-----BEGIN PRIVATE KEY-----")
    expect(clean).toContain("berth@acme-1.iam.gserviceaccount.com")
    expect(scrubbed("no access to acme-1 at https://oauth2.googleapis.com/token", GCP)).not.toContain("redacted")
  })

  it("with something that was taken for a key file", () => {
    expect(scrubbed(`Unexpected token: ${SECRET.slice(0, 10)}`, { keyfile_json: SECRET })).toBe(
      "Unexpected token: [redacted]",
    )
    expect(scrubbed("null is no file: null", { keyfile_json: "null" })).toBe("[redacted] is no file: [redacted]")
  })

  it("with a secret that is shorter than a piece", () => {
    expect(scrubbed("hunter2 is weak", { token: "hunter2" })).toBe("[redacted] is weak")
    expect(scrubbed("as it is", { token: "" })).toBe("as it is")
  })

  it("of any secret and text never has as much as a piece of it", () => {
    fc.assert(
      fc.property(fc.string({ minLength: 8 }), fc.string(), fc.string(), fc.nat(), (token, before, after, at) => {
        const from = at % (token.length - 7)
        const clean = scrubbed(`${before}${token.slice(from)}${after}`, { token })
        // What stands for a secret is no piece of one, whatever it looks like.
        const rest = clean.split("[redacted]")
        for (let i = 0; i + 8 <= token.length; i++)
          for (const text of rest) expect(text).not.toContain(token.slice(i, i + 8))
      }),
    )
  })
})

/** As the errors of clouds are. */
class RefusedError extends Error {
  readonly code: string

  constructor(code: string, message: string, options: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}

describe("a provider's error", () => {
  it("keeps its class, and loses the secret in its words, stack, code and cause, and the cause's fields", () => {
    const cause = Object.assign(new Error(`request with ${SECRET}`), { headers: { authorization: SECRET } })
    const error = new RefusedError(`Bad:${SECRET}`, `no: ${SECRET}`, { cause })
    const clean = scrubbedError(error, AWS)
    expect(clean).toBe(error)
    expect(clean).toBeInstanceOf(RefusedError)
    expect(clean).toMatchObject({ code: "Bad:[redacted]", message: "no: [redacted]" })
    expect(error.cause).toMatchObject({ message: "request with [redacted]" })
    expect(error.cause).not.toHaveProperty("headers")
    for (const { stack } of [error, error.cause as Error]) {
      expect(stack).toContain("scrub.test.ts")
      expect(stack).not.toContain(SECRET)
    }
  })

  it("that is none becomes one", () => {
    expect(scrubbedError(`thrown ${SECRET}`, AWS)).toMatchObject({ message: "thrown [redacted]" })
  })
})
