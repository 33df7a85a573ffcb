import { afterAll, beforeAll, expect } from "vitest"
import { liveCredentials } from "../../src/accounts/credentials.ts"
import { Discoverer } from "../../src/accounts/discoverer.ts"
import { systemClock, timestamp } from "../../src/core/apis/clock.ts"
import { readSealingKeys } from "../../src/core/identity/sealing-keys.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { CredentialsError } from "../../src/core/outbound/errors.ts"
import { CONNECTIONS, PROJECTS } from "../../src/core/resources.ts"
import { Sealer } from "../../src/core/sealing/envelope.ts"
import { KeyringEncryption } from "../../src/core/sealing/keys.ts"
import { browserNeeded } from "../browser.ts"
import { accountWith } from "../discovery/accounts.ts"
import { caller } from "../harness/caller.ts"
import { eventually, PATIENCE_MS } from "../harness/eventually.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { clientOf } from "../harness/machine-users.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import { consoleSite } from "./browser.ts"

const FORMER = { access_key_id: "AKIAFORMER", secret_access_key: "the-former-secret" }
const NEXT = { access_key_id: "AKIANEXT", secret_access_key: "the-next-secret" }

/** Accounts by access key and secret: a cloud knows no other. */
const ACCOUNTS = new Map([
  ["AKIAFORMER the-former-secret", accountWith(["old-data"], new CredentialsError("AccessDenied", "keys expire"))],
  ["AKIANEXT the-next-secret", accountWith(Array.from({ length: 130 }, (_, index) => `bucket-${index}`))],
])

browserNeeded.describe("the connections in the console", () => {
  const fixture = projectFixture("console-connections")
  const stop = new AbortController()
  let discoverer: Discoverer
  const site = consoleSite(fixture, () => ({ discover: (sort, connections) => discoverer.discover(sort, connections) }))
  const call = caller(() => site.replica, fixture)

  beforeAll(async () => {
    const client = await clientOf("berth-facade")
    const projects = new Reflector({ client, logger: silentLogger, resource: PROJECTS })
    void projects.run(stop.signal)
    await projects.whenSynced(AbortSignal.timeout(PATIENCE_MS))
    const sealer = new Sealer(new KeyringEncryption(() => readSealingKeys(client, SYSTEM_NAMESPACE)))
    const openAccount = (_type: string, { access_key_id, secret_access_key }: Record<string, string>) =>
      ACCOUNTS.get(`${access_key_id} ${secret_access_key}`) ?? accountWith(new CredentialsError("Unknown", "no key"))
    const credentialsOf = liveCredentials(client, { projects, sealer })
    discoverer = new Discoverer({ openAccount, credentialsOf, clock: systemClock, logger: silentLogger })
    expect((await call("/1/connections", { body: { name: "main", type: "aws", ...FORMER } })).status).toBe(201)
  })
  afterAll(() => stop.abort())

  browserNeeded.it("show what their account has, and get new credentials that are never shown", async () => {
    const { page, faults } = await site.signedIn("/connections")
    const received: Promise<string>[] = []
    page.on("response", (response) => void received.push(response.text().catch(() => "")))
    await page.getByRole("button", { name: "Buckets of main" }).click()
    await page.getByRole("cell", { name: "old-data" }).waitFor()
    await page.getByText("The list is incomplete: keys expire").waitFor()
    await page.getByRole("button", { name: "Rotate main" }).click()
    const form = page.getByRole("form", { name: "Rotate main" })
    const secret = form.getByLabel("New secret access key")
    expect(await form.getByLabel("Access key id").inputValue()).toBe(FORMER.access_key_id)
    expect([await secret.inputValue(), await secret.getAttribute("type")]).toEqual(["", "password"])
    await form.getByRole("button", { name: "Replace the credentials" }).click()
    await form.getByText("Nothing has changed: enter the new secret.").waitFor()
    await form.getByLabel("Access key id").fill(NEXT.access_key_id)
    await secret.fill(NEXT.secret_access_key)
    await form.getByRole("button", { name: "Replace the credentials" }).click()
    await form.waitFor({ state: "detached" })
    await page.getByText(NEXT.access_key_id).waitFor()
    const { spec } = await fixture.client.get(CONNECTIONS, { namespace: fixture.namespace, name: "main" })
    expect(spec.sealedCredentials).not.toContain(NEXT.secret_access_key)
    expect(await (await call("/1/connections/main")).json()).toMatchObject(NEXT)
    await page.getByRole("button", { name: "Buckets of main" }).click()
    await page.getByRole("button", { name: "Buckets of main" }).click()
    await page.getByRole("cell", { name: "bucket-7", exact: true }).waitFor()
    await page.getByText("130 of 130").waitFor()
    await page.getByLabel("Name contains").fill("bucket-12")
    await page.getByText("11 of 130").waitFor()
    expect(await page.getByRole("cell", { name: /^bucket-/ }).count()).toBe(11)
    await page.getByRole("button", { name: "Rotate main" }).click()
    expect(await secret.inputValue()).toBe("")
    const everything = [await page.content(), ...(await Promise.all(received))].join("\n")
    for (const { secret_access_key } of [FORMER, NEXT]) expect(everything).not.toContain(secret_access_key)
    expect(faults).toEqual([])
  })

  browserNeeded.it("show the condition of the prices in its own words", async () => {
    const { client, namespace } = fixture
    const stored = await client.get(CONNECTIONS, { namespace, name: "main" })
    const message = "AWS denies pricing:GetProducts; Berth uses the shipped spot prices of 2025-04-24"
    const condition = { type: "Prices", status: "False", reason: "Forbidden", message } as const
    const conditions = [{ ...condition, observedGeneration: 1, lastTransitionTime: timestamp(new Date()) }]
    await client.replaceStatus(CONNECTIONS, { ...stored, status: { ...stored.status, conditions } })
    const { page, faults } = await site.signedIn("/connections")
    await page.getByText(message, { exact: true }).waitFor()
    expect(faults).toEqual([])
  })

  browserNeeded.it("are tested now: while it runs, and with each result", async () => {
    const { client, namespace } = fixture
    const ref = { namespace, name: "main" }
    const { page, faults } = await site.signedIn("/connections")
    const button = page.getByRole("button", { name: "Test now main" })
    const result = page.getByRole("article").filter({ hasText: "main" }).getByRole("status")
    const message = "no VM is started with this connection: AWS denies RunInstances in us-east-1"
    const missing = ["ec2:RunInstances"]
    const denied = { vms: { status: "False" as const, reason: "PermissionsMissing", message, missing } }
    for (const [reason, words, shown, capabilities] of [
      ["ProviderUnreachable", "the provider could not be reached: ENOTFOUND", "Unreachable: the provider could", {}],
      ["CredentialsRefused", "the provider rejected the credentials", "Refused: the provider rejected", {}],
      [
        "Verified",
        "the credentials open aws 1",
        "Incomplete: the credentials open aws 1. Missing permissions: ec2:RunInstances.",
        denied,
      ],
      [
        "Verified",
        "the credentials open aws 1",
        "Passed: the credentials open aws 1.",
        {
          vms: {
            status: "True" as const,
            reason: "PermissionsGranted",
            message: "nothing is missing",
            missing: null as never,
          },
        },
      ],
    ] as const) {
      await button.click()
      await result.getByText("Berth asks aws now").waitFor()
      expect(await button.isDisabled()).toBe(true)
      // The operator answers what the annotation asks for.
      await eventually(async () => {
        const { metadata, status } = await client.get(CONNECTIONS, ref)
        const request = metadata.annotations?.["berth.dev/check-requested"]
        expect(request).not.toBe(status?.lastCheck?.request ?? "")
        if (request === undefined) throw new Error("no request")
        const lastCheck = { request, time: timestamp(new Date()), reason, message: words }
        await client.patchStatus(CONNECTIONS, ref, { merge: { status: { lastCheck, capabilities } } })
      })
      await result.getByText(shown).waitFor()
      if (capabilities === denied) await page.getByText("Missing: ec2:RunInstances").waitFor()
    }
    expect(faults).toEqual([])
  })

  browserNeeded.it("show an account, and no form, to a viewer", async () => {
    const { page } = await site.open("/connections")
    await page.getByRole("textbox", { name: "API key" }).fill(fixture.keys.viewer)
    await page.getByRole("button", { name: "Sign in" }).click()
    await page.getByRole("button", { name: "Images of main" }).click()
    await page.getByText("The account has none, or the credentials may not list them.").waitFor()
    expect(await page.getByRole("button", { name: /Rotate|Delete|New/ }).count()).toBe(0)
  })
})
