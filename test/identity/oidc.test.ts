import { exportJWK, generateKeyPair, SignJWT, UnsecuredJWT } from "jose"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { systemClock } from "../../src/core/apis/clock.ts"
import { IssuerUnavailable, TokenVerifier } from "../../src/core/identity/oidc.ts"
import { AUDIENCE, type Issuer, startIssuer } from "../oidc.ts"

let issuer: Issuer
let verifier: TokenVerifier

beforeAll(async () => {
  issuer = await startIssuer()
  verifier = new TokenVerifier({ issuers: [{ issuer: issuer.url, audience: AUDIENCE }], clock: systemClock })
})
afterAll(() => issuer.close())

const now = (): number => Math.floor(Date.now() / 1000)

/** Time at which the tokens of this test expire. */
const expiresAt = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)

describe("a bearer token", () => {
  it("identifies the person whom a token's issuer names", async () => {
    const person = await verifier.verify(await issuer.token())
    const groupsTrouble = expect.objectContaining({ reason: "GroupsMissing" })
    expect(person).toEqual({ userId: `${issuer.url}#ada`, email: "ada@example.com", expiresAt, groupsTrouble })
    const exp = now() + 60
    const expiry = new Date(exp * 1000).toISOString().replace(".000", "")
    expect(await verifier.verify(await issuer.token({ exp }))).toMatchObject({ expiresAt: expiry })
  })

  it.each([[false], ["false"]])("has no e-mail address for the claim email_verified: %j", async (claim) => {
    const token = await issuer.token({ email_verified: claim })
    const person = { userId: `${issuer.url}#ada`, expiresAt, groupsTrouble: expect.anything() }
    expect(await verifier.verify(token)).toEqual(person)
    const verified = await verifier.verify(await issuer.token({ email_verified: true }))
    expect(verified).toMatchObject({ email: "ada@example.com" })
  })

  it("needs no e-mail address", async () => {
    expect(await verifier.verify(await issuer.token({ email: null }))).toEqual({
      userId: `${issuer.url}#ada`,
      expiresAt,
      groupsTrouble: expect.anything(),
    })
  })

  it.each<[string, unknown, string[] | undefined, string | undefined]>([
    ["a list", ["engineers", "/night shift"], ["engineers", "/night shift"], undefined],
    ["a single group", "engineers", ["engineers"], undefined],
    ["an invalid group name", ["", 1, null, { a: 1 }, ["x"], "engineers"], ["engineers"], "GroupsNotNames"],
    ["no group", [], undefined, "GroupsEmpty"],
    ["an object", { engineers: true }, undefined, "GroupsNotAList"],
  ])("returns the person's groups of the issuer from a claim with: %s", async (_what, claim, names, reason) => {
    const groups = names?.map((name) => `${issuer.url}#${name}`)
    const person = {
      userId: `${issuer.url}#ada`,
      email: "ada@example.com",
      expiresAt,
      ...(groups && { groups }),
      ...(reason !== undefined && { groupsTrouble: expect.objectContaining({ reason }) }),
    }
    expect(await verifier.verify(await issuer.token({ groups: claim }))).toEqual(person)
    const trusted = { issuer: issuer.url, audience: AUDIENCE, groupsClaim: "cognito:groups" }
    const other = new TokenVerifier({ issuers: [trusted], clock: systemClock })
    expect(await other.verify(await issuer.token({ "cognito:groups": claim, groups: ["x"] }))).toEqual(person)
  })

  it("accepts several audiences, and times that differ by seconds", async () => {
    const claims = { aud: ["other", AUDIENCE], nbf: now() + 10, exp: now() - 10 }
    expect(await verifier.verify(await issuer.token(claims))).toBeDefined()
  })

  it.each<[string, Record<string, unknown>]>([
    ["another issuer", { iss: "https://elsewhere.test" }],
    ["an issuer that begins like the trusted one", { iss: "http://127.0.0.1" }],
    ["another audience", { aud: "other" }],
    ["no audience", { aud: null }],
    ["an expiry in the past", { exp: 1 }],
    ["no expiry", { exp: null }],
    ["a start in the future", { nbf: 4_000_000_000 }],
    ["no subject", { sub: null }],
    ["an empty subject", { sub: "" }],
  ])("rejects a token with %s", async (_what, claims) => {
    expect(await verifier.verify(await issuer.token(claims))).toBeUndefined()
  })

  it("rejects a token under an unknown key id", async () => {
    expect(await verifier.verify(await issuer.token({}, { kid: "unknown" }))).toBeUndefined()
  })

  it("rejects a token without a signature", async () => {
    const claims = { sub: "ada", iss: issuer.url, aud: AUDIENCE, exp: now() + 300 }
    expect(await verifier.verify(new UnsecuredJWT(claims).encode())).toBeUndefined()
  })

  it("rejects a token with changed content", async () => {
    const [header, , signature] = (await issuer.token()).split(".")
    const claims = { sub: "root", iss: issuer.url, aud: AUDIENCE, exp: now() + 300 }
    const payload = Buffer.from(JSON.stringify(claims)).toString("base64url")
    expect(await verifier.verify(`${header}.${payload}.${signature}`)).toBeUndefined()
  })

  it("rejects a token whose signature uses the public key as a shared secret", async () => {
    const jwks = (await (await fetch(`${issuer.url}/jwks`)).json()) as { keys: object[] }
    const secret = new TextEncoder().encode(JSON.stringify(jwks.keys[0]))
    const token = new SignJWT({ sub: "ada" }).setProtectedHeader({ alg: "HS256", kid: "key-1" })
    token.setIssuer(issuer.url).setAudience(AUDIENCE).setExpirationTime("5m")
    expect(await verifier.verify(await token.sign(secret))).toBeUndefined()
  })

  it("rejects a token that contains its own key", async () => {
    const { privateKey, publicKey } = await generateKeyPair("ES256", { extractable: true })
    const token = new SignJWT({ sub: "ada" })
      .setProtectedHeader({ alg: "ES256", kid: "key-1", jwk: await exportJWK(publicKey) })
      .setIssuer(issuer.url)
      .setAudience(AUDIENCE)
      .setExpirationTime("5m")
    expect(await verifier.verify(await token.sign(privateKey))).toBeUndefined()
  })

  it.each(["", "x", "a.b.c", "e30.e30.", "berth_abc_def"])("rejects a text that is no JWT: %j", async (text) => {
    expect(await verifier.verify(text)).toBeUndefined()
  })
})

describe("an issuer", () => {
  it("accepts tokens of an issuer's new key after a rotation, and rejects old ones", async () => {
    const own = await startIssuer()
    const clock = { ...systemClock, monotonic: () => later + systemClock.monotonic() }
    let later = 0
    const fresh = new TokenVerifier({ issuers: [{ issuer: own.url, audience: AUDIENCE }], clock })
    const old = await own.token()
    expect(await fresh.verify(old)).toBeDefined()
    await own.rotate()
    // Far enough to read the issuer's published keys again.
    later = 601
    expect(await fresh.verify(await own.token())).toBeDefined()
    expect(await fresh.verify(old)).toBeUndefined()
    await own.close()
  })

  it("throws IssuerUnavailable, and rejects no token, while the issuer is unreachable", async () => {
    const own = await startIssuer()
    const fresh = new TokenVerifier({ issuers: [{ issuer: own.url, audience: AUDIENCE }], clock: systemClock })
    const token = await own.token()
    await own.close()
    await expect(fresh.verify(token)).rejects.toBeInstanceOf(IssuerUnavailable)
  })

  it("rejects an issuer without an https URL, except on this machine", () => {
    const issuers = [{ issuer: "http://issuer.example.com", audience: AUDIENCE }]
    expect(() => new TokenVerifier({ issuers, clock: systemClock })).toThrow(/must be an https URL/)
  })
})
