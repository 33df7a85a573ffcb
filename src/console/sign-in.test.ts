import { describe, expect, it } from "vitest"
import { consoleClientOf, tokenFor } from "./sign-in.ts"

/** Returns a token without a signature: its payload has each character of base64url. */
function jwt(payload: object): string {
  const bytes = new TextEncoder().encode(JSON.stringify(payload))
  const base64 = btoa(String.fromCharCode(...bytes))
  return `e30.${base64.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}.c2ln`
}

describe("the token for Berth", () => {
  const id_token = jwt({ aud: "console", name: "Zoë?>~" })
  it.each([
    [
      "the access token with its audience",
      { access_token: jwt({ aud: ["other", "console"] }), id_token },
      "access_token",
    ],
    ["the ID token beside one that only the issuer reads", { access_token: "ya29.opaque", id_token }, "id_token"],
    ["the ID token beside one for another service", { access_token: jwt({ aud: "graph" }), id_token }, "id_token"],
    ["the access token without an ID token", { access_token: "opaque" }, "access_token"],
    ["the access token if neither is for Berth", { access_token: "a.b.c", id_token: jwt({}) }, "access_token"],
  ] as const)("is %s", (_which, tokens, expected) => {
    expect(tokenFor(tokens, "console")).toBe((tokens as Record<string, string>)[expected])
  })
})

describe("the client of the console", () => {
  const facts = {
    version: "1",
    issuer: "https://i.test",
    client_id: "cli",
    audience: "berth",
    default_project: null,
    session_domain: null,
  }
  const ofConsole = { client_id: "console", audience: "web", scope: "openid", exchange: "facade" } as const
  it("is the installation's own", () => {
    const { client_id: clientId, ...rest } = ofConsole
    expect(consoleClientOf({ ...facts, console: ofConsole })).toEqual({ issuer: facts.issuer, clientId, ...rest })
  })
  it("is none without an issuer", () => {
    expect(consoleClientOf({ ...facts, issuer: null, console: null })).toBeUndefined()
  })
})
