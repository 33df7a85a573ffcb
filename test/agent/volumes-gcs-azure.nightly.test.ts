import { generateKeyPairSync } from "node:crypto"
import { once } from "node:events"
import { createServer, type IncomingMessage, type RequestOptions, request, type ServerResponse } from "node:http"
import { request as secureRequest } from "node:https"
import type { AddressInfo } from "node:net"
import { Agent, fetch as dispatchedFetch } from "undici"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type BucketProvider, connectedBuckets } from "../../src/api/gateway/buckets.ts"
import { azureAccounts } from "../../src/clouds/azure/account.ts"
import { azureBuckets } from "../../src/clouds/azure/bucket-credentials.ts"
import { gcpAccounts } from "../../src/clouds/gcp/account.ts"
import { gcsBuckets } from "../../src/clouds/gcp/bucket-credentials.ts"
import type { ConnectionType, StoredConnection } from "../../src/core/apis/connection.ts"
import type { Fetch } from "../../src/core/outbound/guarded-fetch.ts"
import type { BucketAccess } from "../../src/core/protocol/protocol.ts"
import { type Azurite, startAzurite } from "../azurite.ts"
import { startFakeGcs } from "../fake-gcs.ts"
import { until } from "../harness/eventually.ts"
import { startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { missingTool, needing } from "../needing.ts"
import { type ApiServer, type Operation, redirectTo, startApiServer } from "../providers/api-server.ts"
import type { TiedProcess } from "../tied-process.ts"
import { VOLUMES_WAIT_MS } from "./mounts.ts"
import { missingForVolumes, type VolumeVms, volumeVms } from "./volume-vms.ts"

const volumes = needing(await missingForVolumes())
const storageServer = needing(missingTool("fake-gcs-server"))

/** Runs the real rclone through connections and a project's buckets, as jobs mount them. */
volumes.describe("buckets", () => {
  const fixture = launchFixture("volumes-gcs-azure")
  let gateway: TestGateway
  let vms: VolumeVms
  let connection: { type: ConnectionType; fields: Record<string, string> }
  const providers: Record<string, BucketProvider> = {}
  const given: BucketAccess[] = []
  let change: (access: BucketAccess) => BucketAccess = (access) => access

  beforeAll(async () => {
    vms = await volumeVms(fixture)
    const open = connectedBuckets({
      connections: { cached: () => [connectionOf(connection.type)], live: async () => [] },
      credentials: async () => connection.fields,
      providers,
    })
    const buckets: typeof open = async (request) => {
      const opened = Object.entries(await open(request)).map(([name, access]) => [name, change(access)] as const)
      given.push(...opened.map(([, access]) => access))
      return Object.fromEntries(opened)
    }
    gateway = await startGateway(fixture, { parts: { buckets } })
  }, VOLUMES_WAIT_MS)
  afterAll(async () => {
    await gateway.close()
    await vms.remove()
  })
  beforeEach(() => {
    given.length = 0
    change = (access) => access
  })

  const SCRIPT = "cat /in/a.txt > /out/copy.txt && head -c 300000 /dev/zero > /out/big && ls /in"
  const volumesOf = (bucket: string) => ({
    in: { bucket, mountPath: "/in", prefix: "data", readOnly: true },
    out: { bucket, mountPath: "/out", prefix: "results/today" },
  })

  storageServer.describe("Google Cloud Storage", () => {
    const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 })
    let google: ApiServer
    let storage: TiedProcess
    let front: Front
    let tokens = 0

    beforeAll(async () => {
      google = await startApiServer(googleTokens(() => `ya29.down-${++tokens}`))
      storage = await startFakeGcs()
      const { hostname, port } = new URL(storage.address)
      front = await startFront((req, res) => forward(request, { host: hostname, port }, { req, res }))
      const toStorage = redirectTo(() => storage.address)
      const send: Fetch = (input, init) => {
        const isStorage = new URL(input instanceof Request ? input.url : input).host === "storage.googleapis.com"
        return isStorage ? toStorage(input, init) : google.send(input, init)
      }
      const account = gcpAccounts({ send })
      const find: BucketProvider["find"] = async (fields, bucket, signal) => account(fields).bucket?.(bucket, signal)
      providers["gcp"] = { find, access: gcsBuckets({ send }) }
      await object("POST", "/storage/v1/b?project=yard", JSON.stringify({ name: "cargo" }))
    })
    afterAll(async () => {
      await Promise.all([google.stop(), storage.stop(), front.stop()])
    })
    beforeEach(() => {
      const pem = privateKey.export({ type: "pkcs8", format: "pem" }).toString()
      const keyfile = { type: "service_account", project_id: "yard", private_key: pem, client_email: "berth@yard.test" }
      connection = { type: "gcp", fields: { gcp_project_id: "yard", keyfile_json: JSON.stringify(keyfile) } }
      change = toFront
    })
    afterEach(() => expect(google.faults.splice(0)).toEqual([]))

    const toFront = (access: BucketAccess): BucketAccess => ({
      ...access,
      remote: { ...access.remote, endpoint: `${front.url}/storage/v1/` },
    })

    async function object(method: string, path: string, body?: string): Promise<string> {
      const headers = { "content-type": "application/json" }
      const answer = await fetch(`${storage.address}${path}`, { method, headers, ...(body !== undefined && { body }) })
      const text = await answer.text()
      expect(answer.ok, text).toBe(true)
      return text
    }
    const upload = (name: string, content: string) =>
      object("POST", `/upload/storage/v1/b/cargo/o?uploadType=media&name=${encodeURIComponent(name)}`, content)
    const download = (name: string) => object("GET", `/storage/v1/b/cargo/o/${encodeURIComponent(name)}?alt=media`)

    it("volumes are read and written by a token for each folder, which expires", async () => {
      await upload("data/a.txt", "from the bucket")
      await upload("secret.txt", "not in the folder")
      const { launch, exit } = await vms.start(gateway, SCRIPT, volumesOf("cargo"))
      expect((await exit).finish).toMatchObject({ reason: "Succeeded" })
      expect(await download("results/today/copy.txt")).toBe("from the bucket")
      expect((await download("results/today/big")).length).toBe(300_000)
      expect((await gateway.logOf(launch)).toString()).toBe("a.txt\n")
      expect(requestsFor("data/a.txt", front)).toEqual(["GET"])
      const used = [...new Set(front.requests.map(({ headers }) => headers.authorization))].sort()
      expect(used).toEqual(["Bearer ya29.down-1", "Bearer ya29.down-2"])
      expect(given.map(({ expiration }) => Date.parse(expiration ?? "") > Date.now())).toEqual([true, true])
      expect(given.map(({ remote }) => JSON.stringify(remote)).join()).not.toContain("PRIVATE KEY")
      await vms.expectNothingLeft(launch)
    })

    it("volumes keep working with a new token after the old one has expired", async () => {
      let first: string | undefined
      change = (access) => {
        const { remote } = toFront(access)
        const { access_token, ...token } = JSON.parse(remote["token"] ?? "") as { access_token: string }
        first ??= access_token
        // Rclone no longer uses a token that expires within ten seconds; by then there is a new one.
        const expiration = new Date(Date.now() + (access_token === first ? 36_000 : 3_600_000)).toISOString()
        const changed = JSON.stringify({ ...token, access_token, expiry: expiration })
        return { ...access, expiration, remote: { ...remote, token: changed } }
      }
      front.requests.length = 0
      const script = "for i in $(seq 300); do echo tick > /out/$i; sleep 1; done"
      const volumes = { out: { bucket: "cargo", mountPath: "/out", prefix: "ticks" } }
      // The script ignores SIGTERM.
      const { launch, exit } = await vms.start(gateway, script, volumes, { stopGraceSeconds: 1 })
      const uses = () =>
        front.requests.filter(({ method }) => method === "POST").map(({ headers }) => headers.authorization)
      await until("rclone uses another token", () => new Set(uses()).size > 1, 90)
      await fixture.end(launch)
      expect((await exit).finish?.reason).toBe("Stopped")
      expect(await download("ticks/1")).toBe("tick\n")
    })
  })

  describe("Azure Blob Storage", () => {
    const FIELDS = {
      tenant_id: "11111111-2222-3333-4444-555555555555",
      client_id: "99999999-8888-7777-6666-555555555555",
      client_secret: "a~Secret-of.a_test",
      subscription_id: "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
    }
    let azurite: Azurite
    let azure: ApiServer
    let agent: Agent
    let front: Front

    beforeAll(async () => {
      ;[azure, azurite] = await Promise.all([
        startApiServer(azureTokens(FIELDS.tenant_id)),
        startAzurite(["shipstore"]),
      ])
      const { ca, port } = azurite
      agent = new Agent({
        connect: { ca, lookup: (_host, _options, done) => done(null, [{ address: "127.0.0.1", family: 4 }]) },
      })
      const host = "127.0.0.1"
      front = await startFront((req, res) =>
        forward(secureRequest, { host, port, ca, servername: "shipstore.blob.core.windows.net" }, { req, res }),
      )
      const account = azureAccounts({ send })
      const find: BucketProvider["find"] = async (fields, bucket, signal) => account(fields).bucket?.(bucket, signal)
      providers["azure"] = { find, access: azureBuckets({ send }) }
      expect((await blob("PUT", "/cargo?restype=container")).status).toBe(201)
      expect((await blob("PUT", "/other?restype=container")).status).toBe(201)
    })
    afterAll(async () => {
      await agent.destroy()
      await Promise.all([azure.stop(), azurite.stop(), front.stop()])
    })
    beforeEach(() => {
      connection = { type: "azure", fields: FIELDS }
      // An account's address, in the form that emulators use.
      change = ({ remote, ...access }) => {
        const url = (remote["sas_url"] ?? "").replace(
          "https://shipstore.blob.core.windows.net",
          `${front.url}/shipstore`,
        )
        return { ...access, remote: { ...remote, sas_url: url } }
      }
    })
    afterEach(() => expect(azure.faults.splice(0)).toEqual([]))

    const send: Fetch = (input, init) => {
      const url = new URL(input instanceof Request ? input.url : input)
      if (!url.host.endsWith(".blob.core.windows.net")) return azure.send(input, init)
      url.port = String(azurite.port)
      return dispatchedFetch(url, { ...(init as object), dispatcher: agent }) as unknown as Promise<Response>
    }

    async function blob(method: string, path: string, body?: string): Promise<Response> {
      const headers = {
        authorization: `Bearer ${tokenFor("https://storage.azure.com", FIELDS.tenant_id)}`,
        "x-ms-version": "2021-10-04",
        ...(body !== undefined && { "x-ms-blob-type": "BlockBlob" }),
      }
      const url = `https://shipstore.blob.core.windows.net${path}`
      return await send(url, { method, headers, ...(body !== undefined && { body }) })
    }

    it("volumes are read and written by a signature for the container, which expires with the VM", async () => {
      expect((await blob("PUT", "/cargo/data/a.txt", "from the container")).status).toBe(201)
      const { launch, exit } = await vms.start(gateway, SCRIPT, volumesOf("shipstore/cargo"))
      expect((await exit).finish).toMatchObject({ reason: "Succeeded" })
      expect(await (await blob("GET", "/cargo/results/today/copy.txt")).text()).toBe("from the container")
      expect((await (await blob("GET", "/cargo/results/today/big")).text()).length).toBe(300_000)
      expect((await gateway.logOf(launch)).toString()).toBe("a.txt\n")
      expect(requestsFor("data/a.txt", front)).toEqual(["GET"])
      const rights = given.map(({ remote }) => new URL(remote["sas_url"] ?? "").searchParams.get("sp"))
      expect(rights.sort()).toEqual(["racwdl", "rl"])
      const signature = new URL(given[0]?.remote["sas_url"] ?? "").searchParams
      // The harness' Launches have a lifetime of one hour.
      const left = Date.parse(signature.get("se") ?? "") - Date.now()
      expect(left).toBeGreaterThan(0)
      expect(left).toBeLessThanOrEqual(3_600_000)
      expect(Object.fromEntries(signature)).toMatchObject({ sr: "c", spr: "https", skoid: expect.any(String) })
      const other = `${front.url}/shipstore/other?restype=container&comp=list&${signature}`
      expect((await fetch(other)).status).toBe(403)
      await vms.expectNothingLeft(launch)
    })
  })
})

function connectionOf(type: ConnectionType): StoredConnection {
  return {
    metadata: {
      name: "main",
      namespace: "n",
      uid: "1",
      resourceVersion: "1",
      creationTimestamp: "2026-01-01T00:00:00Z",
    },
    spec: { type, sealedCredentials: "sealed" },
  } as StoredConnection
}

/** https://developers.google.com/identity/protocols/oauth2/service-account, https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token */
function googleTokens(downscoped: () => string): Operation[] {
  const source = "ya29.of-the-account"
  const rule = (options: string) =>
    (JSON.parse(options) as { accessBoundary: { accessBoundaryRules: Record<string, unknown>[] } }).accessBoundary
      .accessBoundaryRules[0]
  return [
    {
      method: "POST",
      host: "oauth2.googleapis.com",
      path: /^[/]token$/,
      body: /^grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=[^&]+$/,
      answer: ({ body }) => {
        const assertion = new URLSearchParams(body).get("assertion") ?? ""
        const claims = Buffer.from(assertion.split(".")[1] ?? "", "base64url").toString()
        const { scope } = JSON.parse(claims) as { scope: string }
        // Only a token for the whole scope can be restricted.
        const isWhole = scope === "https://www.googleapis.com/auth/cloud-platform"
        return {
          json: { access_token: isWhole ? source : "ya29.only-reading", expires_in: 3599, token_type: "Bearer" },
        }
      },
    },
    {
      method: "POST",
      host: "sts.googleapis.com",
      path: /^[/]v1[/]token$/,
      headers: { "content-type": /^application[/]x-www-form-urlencoded/ },
      body: /grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange/,
      answer: ({ body }) => {
        const form = Object.fromEntries(new URLSearchParams(body))
        const accessToken = "urn:ietf:params:oauth:token-type:access_token"
        const { availableResource, availablePermissions, availabilityCondition } = rule(form["options"] ?? "") ?? {}
        const condition = String((availabilityCondition as { expression?: string } | undefined)?.expression)
        const isRight =
          form["subject_token"] === source &&
          form["subject_token_type"] === accessToken &&
          form["requested_token_type"] === accessToken &&
          availableResource === "//storage.googleapis.com/projects/_/buckets/cargo" &&
          JSON.stringify(availablePermissions) ===
            `["inRole:roles/storage.${condition.includes("/data/") ? "objectViewer" : "objectUser"}"]` &&
          /^resource\.name\.startsWith\('projects[/]_[/]buckets[/]cargo[/]objects[/][a-z/]+[/]'\) \|\| api\.getAttribute\('storage\.googleapis\.com[/]objectListPrefix', ''\)\.startsWith\('[a-z/]+[/]'\)$/.test(
            condition,
          )
        if (!isRight) return { status: 400, json: { error: "invalid_request", error_description: body } }
        return {
          json: { access_token: downscoped(), issued_token_type: accessToken, token_type: "Bearer", expires_in: 3599 },
        }
      },
    },
  ]
}

/** https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow */
function azureTokens(tenant: string): Operation[] {
  const base = `https://login.microsoftonline.com/${tenant}`
  return [
    {
      method: "GET",
      host: "login.microsoftonline.com",
      path: /[/]v2\.0[/]\.well-known[/]openid-configuration$/,
      answer: () => ({
        json: {
          issuer: `${base}/v2.0`,
          authorization_endpoint: `${base}/oauth2/v2.0/authorize`,
          token_endpoint: `${base}/oauth2/v2.0/token`,
          jwks_uri: `${base}/discovery/v2.0/keys`,
        },
      }),
    },
    {
      method: "POST",
      host: "login.microsoftonline.com",
      path: /[/]oauth2[/]v2\.0[/]token$/,
      query: { "?client-request-id": /./ },
      body: /grant_type=client_credentials/,
      answer: ({ body }) => {
        const scope = new URLSearchParams(body).get("scope") ?? ""
        const audience = scope.split(" ")[0]?.replace(/[/][.]default$/, "") ?? ""
        return { json: { token_type: "Bearer", expires_in: 3599, access_token: tokenFor(audience, tenant) } }
      },
    },
  ]
}

/** Returns a token of Microsoft's form. Azurite, as configured here, does not check its signature. */
function tokenFor(aud: string, tenant: string): string {
  const now = Math.floor(Date.now() / 1000)
  const times = { iat: now, nbf: now - 60, exp: now + 3600 }
  const claims = {
    aud,
    iss: `https://sts.windows.net/${tenant}/`,
    oid: "77777777-8888-9999-0000-111111111111",
    tid: tenant,
    ...times,
  }
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url")
  return `${part({ alg: "none", typ: "JWT" })}.${part(claims)}.none`
}

/** Proxy before a server that records the requests. */
interface Front {
  url: string
  requests: Pick<IncomingMessage, "method" | "url" | "headers">[]
  stop: () => Promise<void>
}

async function startFront(handle: (req: IncomingMessage, res: ServerResponse) => void): Promise<Front> {
  const requests: Front["requests"] = []
  const server = createServer((req, res) => {
    requests.push({ method: req.method, url: req.url, headers: req.headers } as Front["requests"][number])
    handle(req, res)
  }).listen(0, "127.0.0.1")
  await once(server, "listening")
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    stop: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, "close")
    },
  }
}

/** Returns the methods of the requests for an object. */
function requestsFor(object: string, { requests }: Front): (string | undefined)[] {
  return requests.flatMap(({ method, url = "" }) => {
    const { pathname } = new URL(url, "http://front")
    return decodeURIComponent(pathname).endsWith(`/${object}`) ? method : []
  })
}

type Request = (options: RequestOptions, answered: (answer: IncomingMessage) => void) => ReturnType<typeof request>

function forward(send: Request, to: object, { req, res }: { req: IncomingMessage; res: ServerResponse }): void {
  const onward = send({ ...to, method: req.method, path: req.url, headers: req.headers }, (answer) => {
    res.writeHead(answer.statusCode ?? 502, answer.headers)
    answer.pipe(res)
  })
  onward.on("error", () => res.destroy())
  req.pipe(onward)
}
