import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { scrub, scrubError } from "./scrub.ts"

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

describe("the redaction of a provider's message", () => {
  it.each([
    ["the secret", `denied: ${SECRET}.`, "denied: [redacted]."],
    ["its beginning", `denied: ${SECRET.slice(0, 12)}...`, "denied: [redacted]..."],
    ["its end", `...${SECRET.slice(-9)} is wrong`, "...[redacted] is wrong"],
    ["two pieces of it", `${SECRET.slice(3, 13)} ${SECRET.slice(20, 31)}`, "[redacted] [redacted]"],
    ["the secret in a URL", `?key=${encodeURIComponent(SECRET)}&x=1`, "?key=[redacted]&x=1"],
    ["the id of the key", `key ${AWS.access_key_id} is revoked`, "key [redacted] is revoked"],
    ["nothing if there is no secret", "throttled: slow down", "throttled: slow down"],
  ])("removes %s", (_what, message, expected) => expect(scrub(message, AWS)).toBe(expected))

  it("removes the secret from base64 and hex, at any offset", () => {
    const around = fc.string({ maxLength: 12 })
    const encoding = fc.constantFrom<BufferEncoding>("base64", "base64url", "hex")
    fc.assert(
      fc.property(around, around, encoding, (before, after, spelled) => {
        const clean = scrub(Buffer.from(`${before}${SECRET}${after}`).toString(spelled), AWS)
        expect(clean).toContain("[redacted]")
        expect(Buffer.from(clean.replaceAll("[redacted]", ""), spelled).toString()).not.toContain(SECRET.slice(4, 12))
      }),
    )
  })

  it("removes the key of a key file, and keeps the account's name", () => {
    const clean = scrub(`can't parse ${keyfile}: ${JSON.stringify(keyfile)}`, GCP)
    for (const secret of [KEY, KEY.slice(8, 24), "0123456789abcdef"]) expect(clean).not.toContain(secret)
    expect(clean).toContain("-----BEGIN PRIVATE KEY-----")
    expect(clean).toContain("berth@acme-1.iam.gserviceaccount.com")
    expect(scrub("no access to acme-1 at https://oauth2.googleapis.com/token", GCP)).not.toContain("redacted")
  })

  it("removes the text of a file that is not a key file", () => {
    expect(scrub(`Unexpected token: ${SECRET.slice(0, 10)}`, { keyfile_json: SECRET })).toBe(
      "Unexpected token: [redacted]",
    )
    expect(scrub("null is no file: null", { keyfile_json: "null" })).toBe("[redacted] is no file: [redacted]")
  })

  it("removes a secret that is shorter than a piece", () => {
    expect(scrub("hunter2 is weak", { token: "hunter2" })).toBe("[redacted] is weak")
    expect(scrub("as it is", { token: "" })).toBe("as it is")
  })

  it("leaves no piece of any secret in any text", () => {
    fc.assert(
      fc.property(fc.string({ minLength: 8 }), fc.string(), fc.string(), fc.nat(), (token, before, after, at) => {
        const from = at % (token.length - 7)
        const clean = scrub(`${before}${token.slice(from)}${after}`, { token })
        // The placeholder is not a piece of a secret, even if it matches one.
        const rest = clean.split("[redacted]")
        for (let i = 0; i + 8 <= token.length; i++)
          for (const text of rest) expect(text).not.toContain(token.slice(i, i + 8))
      }),
    )
  })
})

/** Error like those of the clouds. */
class RefusedError extends Error {
  readonly code: string

  constructor(code: string, message: string, options: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}

describe("the redaction of a provider's error", () => {
  it("keeps its class, and removes the secret from message, stack, code and cause, and the fields of the cause", () => {
    const cause = Object.assign(new Error(`request with ${SECRET}`), { headers: { authorization: SECRET } })
    const error = new RefusedError(`Bad:${SECRET}`, `no: ${SECRET}`, { cause })
    const clean = scrubError(error, AWS)
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

  it("makes an error of another thrown value", () => {
    expect(scrubError(`thrown ${SECRET}`, AWS)).toMatchObject({ message: "thrown [redacted]" })
  })
})
