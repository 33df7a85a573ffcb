import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { runAgent } from "../../src/agent/main.ts"
import { connectedRegistries, type PullCredentials } from "../../src/api/gateway/registries.ts"
import { ecrRegistries } from "../../src/clouds/aws/ecr.ts"
import { dockerHubRegistry } from "../../src/clouds/dockerhub/account.ts"
import { pullAccess } from "../../src/clouds/registries/pulls.ts"
import type { RegistryOpener } from "../../src/clouds/registry-access.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { StoredConnection } from "../../src/core/apis/connection.ts"
import type { RegistryAccess } from "../../src/core/protocol/protocol.ts"
import { startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { missingForRegistry, startPasswordRegistry, startTokenRegistry, type TestRegistry } from "../registry.ts"
import { buildImages, docker, followProgress, missingForContainers, type TestImages } from "./images.ts"

const containers = needing((await missingForContainers()) ?? missingForRegistry() ?? missingTool("moto"))

/** User and password of moto's ECR, which never change. The line is htpasswd's, with four rounds of bcrypt. */
const ECR_USER = "AWS"
const ECR_PASSWORD = "123456789012-auth-token"
const ECR_HTPASSWD = `${ECR_USER}:$2b$04$ZsOtOyQ2vsx6DREZ.ea9l.oj1fMWNO0tQngjYu1DfpUB3FA/4jMh.`

const PAT = "dckr_pat_of-the-team"
const PUSHER = { username: "pusher", password: "of-a-test" }
const users = {
  pusher: { password: PUSHER.password, pushes: true },
  team: { password: PAT, pulls: ["team/"] },
  others: { password: "dckr_pat_of-others", pulls: ["others/"] },
}

containers.describe("private images", () => {
  const fixture = launchFixture("private-images")
  const disks: string[] = []
  let images: TestImages
  let tokens: TestRegistry
  let passwords: TestRegistry
  let moto: Moto
  let gateway: TestGateway
  /** The project's connections, oldest first, as `<type> <user> <password>`. */
  let connections: string[] = []
  /** Connections in the cache; undefined: it is not filled. */
  let cached: string[] | undefined
  /** Registry access that the gateway returned, in order. */
  const given: RegistryAccess[] = []
  let change: (access: RegistryAccess) => RegistryAccess = (access) => access

  beforeAll(async () => {
    ;[images, tokens, passwords, moto] = await Promise.all([
      buildImages(),
      startTokenRegistry(users),
      startPasswordRegistry(ECR_HTPASSWD),
      startMoto(),
    ])
    for (const repository of ["team/app", "public/app"]) await push(tokens, repository, PUSHER)
    await push(passwords, "team/app", { username: ECR_USER, password: ECR_PASSWORD })
    const find = projectRegistries()
    const registries: PullCredentials = async (request) => {
      const access = change(await find(request))
      given.push(access)
      return access
    }
    gateway = await startGateway(fixture, { parts: { registries } })
  })
  afterAll(async () => {
    await gateway.close()
    for (const { host } of [tokens, passwords]) await forget(host)
    await Promise.all([images.remove(), tokens.stop(), passwords.stop(), moto.stop()])
    await Promise.all(disks.map((disk) => rm(disk, { recursive: true, force: true })))
  })
  beforeEach(async () => {
    given.length = 0
    connections = []
    cached = undefined
    change = (access) => access
    for (const { host } of [tokens, passwords]) await forget(host)
  })

  /** Uses Docker Hub connections for the registry that issues tokens, and AWS connections for the other. */
  function projectRegistries(): PullCredentials {
    const at = (registry: TestRegistry, opener: RegistryOpener, meant: string) => ({
      serves: (host: string) => host === registry.host,
      access: (
        credentials: Record<string, string>,
        scope: { repository: string; reference: string; launch: string },
        signal: AbortSignal,
      ) => {
        // The login names the intended registry; its access is for the registry of this test.
        const login: RegistryOpener["login"] = (fields, asked, limit) =>
          opener.login(fields, { ...asked, registry: meant }, limit)
        const place = { ...scope, registry: registry.host }
        return pullAccess(
          { ...opener, login },
          { credentials, scope: place },
          { signal, clock: systemClock, send: registry.send },
        )
      },
    })
    return connectedRegistries({
      connections: { cached: () => cached?.map(connection), live: async () => connections.map(connection) },
      credentials: async ({ metadata }) => fieldsOf(connections[Number(metadata.uid)] ?? ""),
      providers: {
        dockerhub: at(tokens, dockerHubRegistry, "docker.io"),
        aws: at(passwords, ecrRegistries({ endpoint: moto.url }), "123456789012.dkr.ecr.eu-west-1.amazonaws.com"),
      },
      clock: systemClock,
    })
  }

  async function push(
    { host }: TestRegistry,
    repository: string,
    user: { username: string; password: string },
  ): Promise<void> {
    const image = docker.getImage(images.distroless)
    await image.tag({ repo: `${host}/${repository}`, tag: "1" })
    await followProgress(
      await docker.getImage(`${host}/${repository}:1`).push({ authconfig: { ...user, serveraddress: host } }),
    )
  }

  /** Removes all images of a registry from the engine. */
  async function forget(host: string): Promise<void> {
    const found = await docker.listImages({ filters: { reference: [`${host}/*/*`] } })
    for (const tag of found.flatMap(({ RepoTags }) => RepoTags ?? []))
      if (tag.startsWith(host)) await docker.getImage(tag).remove({ force: true, noprune: true })
  }

  async function run(image: string) {
    const dataDir = await mkdtemp(join(tmpdir(), "berth-agent-"))
    disks.push(dataDir)
    const launch = await fixture.launch({ image })
    const { finish } = await runAgent({
      userData: gateway.userData(launch),
      runtime: "docker",
      logger: silentLogger,
      dataDir,
    })
    return { finish, log: (await gateway.logOf(launch)).toString() }
  }

  it("a connection that the cache does not have yet opens the image at the second registration", async () => {
    connections = [`dockerhub team ${PAT}`]
    cached = []
    const { finish } = await run(`${tokens.host}/team/app:1`)
    expect(finish).toMatchObject({ reason: "Succeeded" })
    expect(given).toEqual([
      { registry: tokens.host, why: expect.any(String), expiration: expect.any(String) },
      { registry: tokens.host, token: expect.stringMatching(/^ey/), expiration: expect.any(String) },
    ])
  })

  it("private images are pulled by the connection whose account has access, with a token for this one image", async () => {
    connections = ["dockerhub others dckr_pat_of-others", `dockerhub team ${PAT}`]
    const { finish, log } = await run(`${tokens.host}/team/app:1`)
    expect(finish).toMatchObject({ reason: "Succeeded" })
    expect(log).toMatch(/FROM scratch/)
    expect(given).toEqual([
      { registry: tokens.host, token: expect.stringMatching(/^ey/), expiration: expect.any(String) },
    ])
    const claims = JSON.parse(
      Buffer.from(String(given[0]?.token).split(".")[1] ?? "", "base64url").toString(),
    ) as object
    expect(claims).toMatchObject({ sub: "team", access: [{ name: "team/app", actions: ["pull"] }] })
  })

  it("private images of ECR are pulled by its password, and the account's key stays in Berth", async () => {
    connections = ["aws AKIAOFATEST000000000 a-secret-of-a-test"]
    const { finish } = await run(`${passwords.host}/team/app:1`)
    expect(finish).toMatchObject({ reason: "Succeeded" })
    const access = { registry: passwords.host, username: ECR_USER, password: ECR_PASSWORD }
    expect(given).toEqual([{ ...access, expiration: expect.any(String) }])
  })

  it("private images fail the job when no connection has access, with the names of registry and connections", async () => {
    const unauthorized = await run(`${tokens.host}/team/app:1`)
    expect(unauthorized.finish).toMatchObject({ reason: "ImagePullFailed" })
    expect(unauthorized.finish?.message).toMatch(
      /team\/app:1 can't be pulled: .*no connection of the project is for it/,
    )
    connections = ["dockerhub others dckr_pat_of-others", "dockerhub team dckr_pat_revoked"]
    const refused = await run(`${tokens.host}/team/app:1`)
    expect(refused.finish).toMatchObject({ reason: "ImagePullFailed" })
    const message = refused.finish?.message ?? ""
    expect(message).toContain(`registry ${tokens.host}: connection hub-0 may not pull it, or there is no such image`)
    expect(message).toMatch(/connection hub-1: .*401/)
    expect(message).not.toContain("dckr_pat")
  })

  it("private registries do not affect public images, whatever happens to the connections", async () => {
    expect((await run(`${tokens.host}/public/app:1`)).finish).toMatchObject({ reason: "Succeeded" })
    await forget(tokens.host)
    connections = ["dockerhub team dckr_pat_revoked"]
    expect((await run(`${tokens.host}/public/app:1`)).finish).toMatchObject({ reason: "Succeeded" })
    expect(given.at(-1)?.why).toContain("connection hub-0")
  })

  it("private images are requested again with a new token after the first has expired", async () => {
    connections = [`dockerhub team ${PAT}`]
    change = (access) => {
      if (given.length > 0) return access
      return { registry: access.registry, token: "ended", expiration: "2026-01-01T00:00:00Z" }
    }
    expect((await run(`${tokens.host}/team/app:1`)).finish).toMatchObject({ reason: "Succeeded" })
    expect(given).toHaveLength(2)
  })
})

function connection(line: string, index: number): StoredConnection {
  const type = line.split(" ")[0]
  return {
    apiVersion: "berth.dev/v1alpha1",
    kind: "Connection",
    metadata: {
      name: `hub-${index}`,
      namespace: "n",
      uid: String(index),
      resourceVersion: "1",
      creationTimestamp: `2026-01-0${index + 1}T00:00:00Z`,
    },
    spec: { type, sealedCredentials: "sealed" },
  } as StoredConnection
}

function fieldsOf(line: string): Record<string, string> {
  const [type, user = "", secret = ""] = line.split(" ")
  return type === "aws" ? { access_key_id: user, secret_access_key: secret } : { username: user, token: secret }
}
