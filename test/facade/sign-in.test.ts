import { once } from "node:events"
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { calculatePKCECodeChallenge, randomPKCECodeVerifier } from "openid-client"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { type DevelopmentIssuer, startIssuer } from "../../dev/issuer.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { CodeExchange } from "../../src/core/identity/code-exchange.ts"
import { TokenVerifier } from "../../src/core/identity/oidc.ts"
import { problemIn } from "../harness/caller.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { Browser } from "../sign-in.ts"

const CLIENT = { clientId: "berth-console", secret: "the-secret-of-the-console-1f0c" }
const AUDIENCE = CLIENT.clientId

describe("the exchange of a sign-in's code by the façade", () => {
  const fixture = projectFixture("facade-sign-in")
  let folder: string
  let secretFile: string
  let issuer: DevelopmentIssuer
  let replica: Replica
  /** Everything that the façade answered, and every proof of the browser. */
  const answers: string[] = []
  const proofs: string[] = []

  const start = (at: { issuer: string }, settings: object = {}): Promise<Replica> =>
    startReplica({
      consoleFolder: folder,
      tokens: new TokenVerifier({ issuers: [{ ...issuer, consoleAudience: AUDIENCE }], clock: systemClock }),
      codeExchange: new CodeExchange({ ...at, clientId: CLIENT.clientId, secretFile, clock: systemClock }),
      settings: {
        signIn: {
          issuer: issuer.issuer,
          audience: issuer.audience,
          clientId: "berth-cli",
          console: { clientId: CLIENT.clientId, audience: AUDIENCE, scopes: "openid email" },
        },
        ...settings,
      },
    })

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-sign-in-"))
    secretFile = join(folder, "client-secret")
    await writeFile(secretFile, `${CLIENT.secret}\n`)
    await mkdir(join(folder, "assets"))
    await writeFile(join(folder, "index.html"), "<!doctype html><title>Berth</title>")
    // A distributed claim, as Entra ID's for a person in more than 200 groups.
    const crowd = { _claim_names: { groups: "src1" }, _claim_sources: { src1: { endpoint: "https://graph.example" } } }
    const groupClaimsOf = (name: string): object => (name === "ada" ? crowd : { groups: ["engineers"] })
    const options = { port: 0, dataDir: folder, consoleClient: CLIENT, hasCors: false }
    issuer = await startIssuer({ ...options, groupClaimsOf: (name) => ({ ...groupClaimsOf(name) }) })
    replica = await start(issuer)
  })
  afterAll(async () => {
    await replica.close()
    await issuer.close()
    await rm(folder, { recursive: true })
  })

  const originOf = (of: Replica): string => `http://127.0.0.1:${of.port}`

  async function ask(path: string, init: RequestInit = {}, of = replica): Promise<Response> {
    const answer = await fetch(originOf(of) + path, init)
    answers.push(await answer.clone().text())
    return answer
  }

  /** Signs Ada in at the issuer, as a browser does. Returns what the page that she comes back to has. */
  async function arrived(of = replica) {
    const facts = (await (await ask("/console/sign-in/issuer", {}, of)).json()) as { authorization_endpoint: string }
    const verifier = randomPKCECodeVerifier()
    const redirect_uri = `${originOf(of)}/console/signed-in`
    const wanted = {
      client_id: CLIENT.clientId,
      response_type: "code",
      scope: "openid email",
      redirect_uri,
      code_challenge: await calculatePKCECodeChallenge(verifier),
      code_challenge_method: "S256",
    }
    const address = `${facts.authorization_endpoint}?${new URLSearchParams(wanted)}`
    const page = new URL(await new Browser().agree(address, { login: "ada" }))
    const code = page.searchParams.get("code") ?? ""
    expect(code).not.toBe("")
    proofs.push(code, verifier)
    return { code, code_verifier: verifier, redirect_uri }
  }

  const exchange = (body: object, headers: Record<string, string> = {}, of = replica): Promise<Response> =>
    ask(
      "/console/sign-in/token",
      {
        method: "POST",
        headers: { "Content-Type": "application/json", Origin: originOf(of), ...headers },
        body: JSON.stringify(body),
      },
      of,
    )

  it("is announced to the console, whose page then calls no other host", async () => {
    const { console: client } = (await (await ask("/.well-known/berth")).json()) as { console: object }
    const shown = { client_id: CLIENT.clientId, audience: AUDIENCE, scope: "openid email", exchange: "facade" }
    expect(client).toEqual(shown)
    expect((await ask("/console/")).headers.get("content-security-policy")).toContain("connect-src 'self';")
    const facts = await ask("/console/sign-in/issuer")
    expect(await facts.json()).toEqual({
      issuer: issuer.issuer,
      authorization_endpoint: `${issuer.issuer}/auth`,
      authorization_response_iss_parameter_supported: true,
    })
    expect((await ask("/console/sign-in/token")).status).toBe(405)
  })

  it("gives tokens that the API accepts, once, and no refresh token", async () => {
    const given = await arrived()
    const answer = await exchange(given)
    expect(answer.headers.get("cache-control")).toBe("no-store")
    const tokens = (await answer.json()) as Record<string, string>
    expect(Object.keys(tokens).sort()).toEqual(["access_token", "id_token"])
    proofs.push(...Object.values(tokens))
    const whoAmI = (token = "") =>
      ask(`/projects/${fixture.project}/1/whoami`, { headers: { Authorization: `Bearer ${token}` } })
    // The access token is opaque. Ada has no role in the project.
    expect((await whoAmI(tokens["access_token"])).status).toBe(401)
    const { status, detail } = await problemIn((await whoAmI(tokens["id_token"])) as never)
    expect([status, detail]).toEqual([404, expect.stringContaining("it has _claim_names instead")])
    const again = await problemIn((await exchange(given)) as never)
    expect([again.status, again.type]).toEqual([400, "https://berth.dev/problems/sign-in-rejected"])
    expect(again.detail).toBe(`${issuer.issuer} rejected the sign-in (invalid_grant). Sign in again.`)
  })

  it("gives nothing for another verifier", async () => {
    const given = await arrived()
    const answer = await exchange({ ...given, code_verifier: randomPKCECodeVerifier() })
    expect([answer.status, await answer.json()]).toEqual([400, expect.objectContaining({ errors: [] })])
  })

  it("asks the issuer only for its own console", async () => {
    const given = await arrived()
    const port = replica.port
    const foreign = [
      "https://evil.example/console/signed-in",
      `http://127.0.0.1:${port}/console/signed-in?next=https://evil.example`,
      `http://127.0.0.1:${port}/console/signed-in/`,
      `http://127.0.0.1:${port}/console/../console/signed-in`,
      `http://ada@127.0.0.1:${port}/console/signed-in`,
      `http://127.0.0.1:${port + 1}/console/signed-in`,
      `http://localhost:${port}/console/signed-in`,
      "http://berth.test/console/signed-in",
      "https://berth.test/console/signed-in",
      "",
    ]
    for (const redirect_uri of foreign) {
      const { status, errors } = await problemIn((await exchange({ ...given, redirect_uri })) as never)
      expect([status, errors[0]?.pointer], redirect_uri).toEqual([400, "/redirect_uri"])
    }
    expect((await exchange(given, { Origin: "https://evil.example" })).status).toBe(400)
    expect((await exchange({ ...given, code_verifier: "short" })).status).toBe(400)
    expect((await exchange({ ...given, client_id: "another" })).status).toBe(400)
    // The issuer has not seen the code: it would have rejected it from then on.
    expect((await exchange(given)).status).toBe(200)
  })

  it("asks no more for an address whose sign-ins fail again and again", async () => {
    const limited = await start(issuer, { failuresPerMinute: 2 })
    const given = await arrived(limited)
    const wrong = { ...given, code: "wrong" }
    const statuses = async (body: object) => (await exchange(body, {}, limited)).status
    expect([await statuses(wrong), await statuses(wrong), await statuses(wrong)]).toEqual([400, 400, 429])
    const refused = await exchange(given, {}, limited)
    expect([refused.status, Number(refused.headers.get("retry-after"))]).toEqual([429, expect.any(Number)])
    await limited.close()
    const { access_token } = await new CodeExchange({
      issuer: issuer.issuer,
      clientId: CLIENT.clientId,
      secretFile,
      clock: systemClock,
    }).exchange({ code: given.code, verifier: given.code_verifier, redirectUri: given.redirect_uri })
    expect(access_token).not.toBe("")
  })

  it("reads a changed secret at once, and shows none that is wrong or absent", async () => {
    const given = await arrived()
    await writeFile(secretFile, "a-former-secret-77ab")
    const rejected = await problemIn((await exchange(given)) as never)
    expect([rejected.status, rejected.detail]).toEqual([503, expect.stringContaining("(invalid_client)")])
    await rm(secretFile)
    expect((await exchange(given)).status).toBe(503)
    expect(replica.logged()).toContain("the secret of the console's client can't be read")
    await writeFile(secretFile, CLIENT.secret)
    expect((await exchange(await arrived())).status).toBe(200)
  })

  it("repeats nothing of an issuer that sends the secret back", async () => {
    const echo = createServer((req, res) => {
      const { authorization = "" } = req.headers
      const secret = Buffer.from(authorization.replace("Basic ", ""), "base64").toString().split(":")[1]
      const description = { issuer: url, authorization_endpoint: `${url}/auth`, token_endpoint: `${url}/token` }
      const body =
        req.method === "POST" ? { error: secret, error_description: `${secret} ${authorization}` } : description
      res.writeHead(req.method === "POST" ? 400 : 200, { "Content-Type": "application/json" }).end(JSON.stringify(body))
    })
    await once(echo.listen(0, "127.0.0.1"), "listening")
    const url = `http://127.0.0.1:${(echo.address() as AddressInfo).port}`
    const other = await start({ issuer: url })
    const given = {
      code: "c",
      code_verifier: randomPKCECodeVerifier(),
      redirect_uri: `${originOf(other)}/console/signed-in`,
    }
    const { detail } = await problemIn((await exchange(given, {}, other)) as never)
    expect(detail).toBe(`${url} rejected the sign-in (unknown error). Sign in again.`)
    echo.closeAllConnections()
    echo.close()
    expect((await exchange(given, {}, other)).status).toBe(503)
    expect(other.logged()).toContain("did not answer")
    expect(other.logged()).not.toMatch(secretPattern())
    await other.close()
  })

  it("has shown the secret in no answer, and no proof in a line of the log", () => {
    expect(answers.join("\n")).not.toMatch(secretPattern())
    const logged = replica.logged()
    expect(logged).toContain("/console/signed-in?code=[redacted]")
    expect(logged).not.toMatch(secretPattern())
    for (const proof of proofs) expect(logged).not.toContain(proof)
  })
})

/** Matches the secret, also as base64 of a header. */
function secretPattern(): RegExp {
  const basic = Buffer.from(`${CLIENT.clientId}:${CLIENT.secret}`).toString("base64")
  return new RegExp(`${CLIENT.secret}|${basic.slice(0, -4)}|a-former-secret`)
}
