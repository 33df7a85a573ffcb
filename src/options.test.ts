import { afterEach, describe, expect, it, vi } from "vitest"
import { readInvocation } from "./options.ts"

const OPERATOR = [
  "node",
  "berth",
  "operator",
  "--gateway-url",
  "https://gateway.test",
  "--agent-image",
  "berth:1",
  "--volumes-image",
  "berth:1",
]

/** Returns the output of a program that prints and ends, because there is nothing to run. */
async function complaintOf(...args: string[]): Promise<string> {
  return complaintAbout([...OPERATOR, ...args])
}

async function complaintAbout(argv: string[]): Promise<string> {
  const printed = vi.spyOn(process.stderr, "write").mockReturnValue(true)
  vi.spyOn(process, "exit").mockImplementation(() => {
    throw new Error("exit")
  })
  await expect(readInvocation(argv, "1.0.0")).rejects.toThrow("exit")
  return printed.mock.calls.flat().join("")
}

describe("networks by region", () => {
  it.each([
    ["--aws-networks", "awsNetworks", { "eu-central-1": { subnetIds: ["subnet-0a1b"] } }],
    ["--gcp-networks", "gcpNetworks", { "europe-west1": { network: "yard", subnetwork: "yard-europe" } }],
  ])("%s are read", async (flag, field, networks) => {
    const { options } = await readInvocation([...OPERATOR, flag, JSON.stringify(networks)], "1.0.0")
    expect(options).toHaveProperty(field, networks)
  })

  it.each([
    ["--aws-networks", '{ "europe-west1": {} }', /europe-west1: not a region of this cloud, such as eu-central-1/],
    ["--gcp-networks", '{ "eu-central-1": {} }', /eu-central-1: not a region of this cloud, such as europe-west1/],
    ["--gcp-networks", '{ "europe-west1": { "network": "Yard" } }', /europe-west1[/]network/],
    ["--gcp-networks", "europe-west1", /not valid JSON/],
  ])("%s %s is refused, with the reason", async (flag, text, reason) => {
    expect(await complaintOf(flag, text)).toMatch(reason)
  })
})

describe("the proxy of VMs", () => {
  it("is read", async () => {
    const vmProxy = { url: "http://proxy.example.com:3128", noProxy: ".corp.example.com,10.0.0.1" }
    const { options } = await readInvocation([...OPERATOR, "--vm-proxy", JSON.stringify(vmProxy)], "1.0.0")
    expect(options).toMatchObject({ vmProxy })
  })

  it.each([
    '{"url":"http://ada:s3cret@proxy.example.com"}',
    '{"url":"http://proxy.example.com/s3cret"}',
    '{"url":"socks5://s3cret"}',
    `{"url":"http://a.example.com","noProxy":"$(s3cret)"}`,
    '{"url":"http://s3cret',
  ])("%s is refused, and its text is not printed", async (text) => {
    const complaint = await complaintOf("--vm-proxy", text)
    expect(complaint).toMatch(/--vm-proxy \(BERTH_VM_PROXY\) is not valid/)
    expect(complaint).not.toContain("s3cret")
  })
})

describe("the authorities that VMs trust", () => {
  it.each(["/nowhere/ca.pem", import.meta.filename])("%s is refused", async (path) => {
    expect(await complaintOf("--vm-ca", path)).toMatch(/can't be read|is no file of certificates in PEM/)
  })
})

describe("the socket of the Docker engine", () => {
  const AGENT = ["node", "berth", "agent", "--data-dir", "/var/lib/berth"]
  afterEach(() => vi.unstubAllEnvs())

  it.each([
    ["unix:///run/user/1000/docker.sock", "/run/user/1000/docker.sock"],
    ["/home/me/.colima/docker.sock", "/home/me/.colima/docker.sock"],
  ])("is that of DOCKER_HOST=%s", async (text, dockerSocket) => {
    vi.stubEnv("DOCKER_HOST", text)
    const { options } = await readInvocation(AGENT, "1.0.0")
    expect(options).toMatchObject({ dockerSocket })
  })

  it.each(["", "tcp://127.0.0.1:2375", "ssh://me@host", "docker.sock"])(
    "is not %s, with what is allowed",
    async (text) => {
      vi.stubEnv("DOCKER_HOST", text)
      const said = await complaintAbout(AGENT)
      expect(said).toContain(`"${text}" is not a socket of this machine: give an absolute path`)
      expect(said).toContain("DOCKER_HOST")
    },
  )
})

describe("the console's client", () => {
  const FACADE = ["node", "berth", "facade"]
  const ISSUER = ["--oidc-issuer", "https://issuer.test", "--oidc-audience", "berth"]
  const read = async (...args: string[]) => (await readInvocation([...FACADE, ...ISSUER, ...args], "1.0.0")).options

  it("is the one of command lines, in the browser", async () => {
    expect(await read()).toMatchObject({ oidcClientId: "berth-cli", consoleClient: { exchange: "browser" } })
  })

  it("may be another one, whose secret only the façade reads", async () => {
    const own = ["--oidc-console-client-id", "web", "--oidc-console-audience", "web-audience"]
    const secret = ["--oidc-console-secret-file", "/etc/secret", "--oidc-console-scopes", "openid groups"]
    const client = { clientId: "web", scopes: "openid groups", exchange: "facade", secretFile: "/etc/secret" }
    const options = await read(...own, ...secret)
    expect(options).toMatchObject({
      consoleClient: client,
      issuer: { audience: "berth", consoleAudience: "web-audience" },
    })
    expect(Object.keys(options).filter((name) => name.startsWith("oidcConsole"))).toEqual([])
  })

  it.each([
    [["--oidc-console-secret-file", "s"], /requires --oidc-console-client-id/],
    [
      ["--oidc-console-secret-file", "s", "--oidc-console-client-id", "web", "--oidc-console-exchange", "browser"],
      /requires --oidc-console-exchange facade/,
    ],
    [["--oidc-console-scopes", "openid,email email "], /no list of scopes/],
    [["--oidc-console-exchange", "issuer"], /Allowed choices are browser, facade/],
  ])("%j is refused, with the reason", async (args, reason) => {
    expect(await complaintAbout([...FACADE, ...ISSUER, ...args])).toMatch(reason)
  })
})

describe("the domain of ports", () => {
  const FACADE = ["node", "berth", "facade", "--base-domain", "Berth.example.com"]
  const given = (domain: string, ...more: string[]) => [...FACADE, "--session-domain", domain, ...more]

  it.each(["ports.example.com", "ports.berth.example.com", "berth.example.org"])("may be %s", async (domain) => {
    const { options } = await readInvocation(given(domain.toUpperCase(), "--sessions", "true"), "1.0.0")
    expect(options).toMatchObject({ sessionDomain: domain })
  })

  it.each([
    [given("ports.example.com"), /requires --sessions true/],
    [given("berth.example.com", "--sessions", "true"), /give ports a domain of their own/],
    [given("example.com", "--sessions", "true"), /give ports a domain of their own/],
    [given("*.ports.example.com", "--sessions", "true"), /is not a domain: give one such as ports.example.com/],
    [given("https://ports.example.com", "--sessions", "true"), /is not a domain/],
  ])("%j is refused, with the reason", async (args, reason) => {
    expect(await complaintAbout(args)).toMatch(reason)
  })
})

describe("the issuers of workloads", () => {
  const FACADE = ["node", "berth", "facade"]
  const CI = { issuer: "https://ci.example.com", audience: "https://berth.example.com" }
  const given = (...issuers: object[]) => ["--workload-issuers", JSON.stringify(issuers)]

  it("are read, also without a sign-in of people", async () => {
    const { options } = await readInvocation([...FACADE, ...given(CI)], "1.0.0")
    expect(options).toMatchObject({ workloadIssuers: [CI] })
    expect(options).not.toHaveProperty("issuer")
  })

  it.each([
    [given({ issuer: CI.issuer }), /audience is required/],
    [given({ ...CI, audience: "" }), /audience must not be empty/],
    [given({ ...CI, issuer: "http://ci.example.com" }), /must be an https URL/],
    [given({ ...CI, issuer: "ci.example.com" }), /must be an https URL/],
    [given(CI, { ...CI, audience: "other" }), /is there twice/],
    [given({ ...CI, subject: "*" }), /subject/],
    [[...given(CI), "--oidc-issuer", CI.issuer, "--oidc-audience", "berth"], /people sign in there/],
  ])("%j is refused, with the reason", async (args, reason) => {
    expect(await complaintAbout([...FACADE, ...args])).toMatch(reason)
  })
})

describe("the default of reuse", () => {
  it.each(["1", "3600"])("is read: %s s", async (text) => {
    const { options } = await readInvocation([...OPERATOR, "--default-reuse-idle-seconds", text], "1.0.0")
    expect(options).toMatchObject({ defaultReuseIdleSeconds: Number(text) })
  })

  it.each(["0", "3601", "5m", ""])("%j is refused, with the bounds", async (text) => {
    expect(await complaintOf("--default-reuse-idle-seconds", text)).toMatch(/whole seconds from 1 to 3600/)
  })
})
