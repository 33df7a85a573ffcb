import { execFile } from "node:child_process"
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest"
import { newCertificateAuthority } from "../../dev/controlplane/certificates.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import { declareKey } from "../../src/core/identity/key-manifest.ts"
import { readSealingKeys } from "../../src/core/identity/sealing-keys.ts"
import { CONFIG_MAPS, SECRETS } from "../../src/core/kube/core.ts"
import { CONNECTIONS } from "../../src/core/resources.ts"
import { parseSealingKeyId } from "../../src/core/sealing/envelope.ts"
import { eventually } from "../harness/eventually.ts"
import { ShiftedClock } from "../harness/shifted-clock.ts"
import { SimProvider } from "../harness/sim-provider.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import { Berth, connectionManifests, TEAM } from "./berth.ts"
import { commandsOf, Shell } from "./page.ts"

/** The commands of docs/operate.md that replace keys, credentials and certificates. */

const run = promisify(execFile)
const ROOT = join(import.meta.dirname, "..", "..")
const clock = new ShiftedClock()
const provider = new SimProvider(clock)
const { value: adminKey, manifest } = declareKey({ name: "admin", role: "admin", namespace: "team" })
let folder: string
let berth: Berth
let shell: Shell

/** Runs a program of the sources in place of the installed one. */
async function node(file: string, args: readonly string[]): Promise<string> {
  const env = { ...process.env, BERTH_URL: berth.url, BERTH_PROJECT: "team", BERTH_API_KEY: adminKey }
  return (await run(process.execPath, [join(ROOT, "src", file), ...args], { env, cwd: folder })).stdout.trim()
}

const replacements = {
  berth: (command: string) => node("cli/main.ts", command.split(" ")),
  docker: (command: string) => {
    const [, args = ""] = command.split(/ ghcr\.io\/berth-dev\/berth:\S+ /)
    return node("main.ts", args.replace("/kubeconfig", berth.controlPlane.kubeconfigPath).split(" "))
  },
  kubectl: async (command: string) => {
    if (!command.includes(" rollout restart deployment ")) return undefined
    await berth.stopFacade()
    await berth.stopOperator()
    await berth.startFacade()
    await berth.startOperator()
    return "restarted"
  },
}

async function blocks(heading: string): Promise<string[]> {
  const outputs: string[] = []
  for (const block of commandsOf(heading)) outputs.push(await shell.run(block))
  return outputs
}

async function statusOf(key: string): Promise<number> {
  return (await berth.rest("team", key, "/jobs")).status
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-rotate-"))
  await mkdir(join(folder, "shell"))
  provider.issue("account", "the-first-secret")
  berth = await Berth.start(join(folder, "cluster"), { clock, provider, logsDir: join(folder, "logs") })
  await berth.install()
  const kubectl = `${inject("kubectlPath")} --kubeconfig ${berth.controlPlane.kubeconfigPath}`
  shell = await new Shell({ folder: join(folder, "shell"), programs: { kubectl }, replacements, env: {} }).open()
  await berth.startFacade()
  await berth.startOperator()
  const inProject = `${manifest}---
${connectionManifests("from-secret", "the-first-secret")}`
  await shell.run(`kubectl apply --server-side -f - <<'END'\n${TEAM}END`)
  await shell.run("kubectl wait --for=condition=Ready project/team --timeout=1m")
  await shell.run(`kubectl apply --server-side -f - <<'END'\n${inProject}\nEND`)
  await eventually(async () => {
    const body = {
      name: "main",
      type: "aws",
      access_key_id: "AKIAIOSFODNN7EXAMPLE",
      secret_access_key: "the-first-secret",
    }
    const { status } = await berth.rest("team", adminKey, "/connections", { method: "POST", body })
    expect([201, 409]).toContain(status)
  })
})
afterAll(async () => {
  await shell?.close()
  await berth?.stop()
  await rm(folder, { recursive: true, force: true })
})

async function expectReady(): Promise<void> {
  await eventually(async () => {
    for (const name of ["main", "from-secret"]) {
      const { status } = await berth.client.get(CONNECTIONS, { namespace: "team", name })
      expect(findCondition(status?.conditions, "Ready")?.status).toBe("True")
    }
  })
}

describe("a rotation by docs/operate.md", () => {
  it("replaces an API key", async () => {
    const former = await node("cli/main.ts", ["key", "create", "builds", "--role", "developer"])
    await eventually(async () => expect(await statusOf(former)).toBe(200))
    const [create = "", remove = ""] = commandsOf("An API key")
    const next = (await shell.run(create)).trim()
    await eventually(async () => expect(await statusOf(next)).toBe(200))
    expect(await statusOf(former)).toBe(200)
    await shell.run(remove)
    await eventually(async () => expect(await statusOf(former)).toBe(401))
    expect(await statusOf(next)).toBe(200)
  })

  it("replaces credentials of connections, sealed and in a Secret", async () => {
    await expectReady()
    provider.issue("account", "the-second-secret")
    for (const path of [folder, join(folder, "shell")]) await writeFile(join(path, "new-secret"), "the-second-secret")
    await blocks("Credentials of a connection")
    await eventually(() =>
      expect(provider.verified.filter((secret) => secret === "the-second-secret").length).toBeGreaterThan(1),
    )
    provider.revoke("the-first-secret")
    await expectReady()
  })

  it("replaces the sealing key", async () => {
    const former = (await readSealingKeys(berth.client, SYSTEM_NAMESPACE)).primary
    const [output = ""] = await blocks("The sealing key")
    expect(output).toContain(`It replaces ${former}`)
    await eventually(async () => {
      const { primary, keys } = await readSealingKeys(berth.client, SYSTEM_NAMESPACE)
      const { spec } = await berth.client.get(CONNECTIONS, { namespace: "team", name: "main" })
      expect(parseSealingKeyId(spec.sealedCredentials ?? "")).toBe(primary)
      expect([...keys.keys()]).toEqual([primary])
    })
    await expectReady()
  })

  it("replaces the keys of identity tokens", async () => {
    const ref = { namespace: SYSTEM_NAMESPACE, name: "berth-identity-keys" }
    // No connection of this installation signs in without a secret, so it has no such keys yet.
    await berth.client.create(SECRETS, { metadata: ref, type: "berth.dev/identity-keys", data: {} })
    await blocks("The keys of identity tokens")
    await expect(berth.client.get(SECRETS, ref)).rejects.toThrow(/not found/)
    await expectReady()
  })

  it("replaces the certificate and the secret of the console's client", async () => {
    const inShell = (name: string) => join(folder, "shell", name)
    for (const round of ["first", "second"]) {
      const { certificate, key } = newCertificateAuthority(round).issue({ commonName: "berth.example.com" })
      await writeFile(inShell("fullchain.pem"), certificate)
      await writeFile(inShell("privkey.pem"), key)
      await writeFile(inShell("client-secret"), round)
      await blocks("Certificates and the console's client")
      const tls = await berth.client.get(SECRETS, { namespace: SYSTEM_NAMESPACE, name: "berth-tls" })
      expect(Buffer.from(tls.data?.["tls.crt"] ?? "", "base64").toString()).toBe(certificate)
      const client = await berth.client.get(SECRETS, { namespace: SYSTEM_NAMESPACE, name: "console-client" })
      expect(Buffer.from(client.data?.["client-secret"] ?? "", "base64").toString()).toBe(round)
    }
  })

  it("makes the ConfigMap of own authorities in the same way", async () => {
    const { certificate } = newCertificateAuthority("own")
    await writeFile(join(folder, "shell", "ca.crt"), certificate)
    await blocks("Your own authority")
    const made = await berth.client.get(CONFIG_MAPS, { namespace: SYSTEM_NAMESPACE, name: "authorities" })
    expect(made.data).toEqual({ "ca.crt": certificate })
  })
})
