import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, expect } from "vitest"
import {
  type ConnectionCheck,
  ConnectionCheckSchema,
  type ConnectionRecord,
} from "../../src/api/resources/connections/schema.ts"
import { awsAccounts } from "../../src/clouds/aws/account.ts"
import { findErrors } from "../../src/core/apis/validate.ts"
import { allow, deleteKey, makeUser, type UserKey, VM_ACTIONS, withoutAuthentication } from "../cloud/moto-users.ts"
import { kubectl, testNamespace } from "../control-plane.ts"
import { BASE_DOMAIN, type Call, caller } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, shippedOffers } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { clientOf, makeSystemNamespace, rightsArrive } from "../harness/machine-users.ts"
import { Programs } from "../harness/programs.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"

const { describe, it } = needing(missingTool("moto"))

/** A whole installation, whose operator asks moto as AWS. Nothing answers at the other endpoints. */
describe("a check of a connection", () => {
  const fixture = projectFixture("connection-check")
  const systemNamespace = testNamespace("connection-check-system")
  const closing: (() => Promise<unknown>)[] = []
  const call = caller(() => ({ port }) as Replica, fixture)
  let port = 0
  let moto: Moto
  let key: UserKey
  /** Endpoint that the operator takes for AWS. */
  let endpoint = ""
  let verifications = 0

  beforeAll(async () => {
    moto = await startMoto()
    closing.push(() => moto.stop())
    endpoint = moto.url
    key = await makeUser(
      moto,
      "berth",
      VM_ACTIONS.filter((action) => action !== "ec2:RunInstances"),
    )
    const folder = await mkdtemp(join(tmpdir(), "berth-check-"))
    closing.push(() => rm(folder, { recursive: true }))
    await makeSystemNamespace(fixture.client, systemNamespace)
    await rightsArrive(systemNamespace)
    const account = (fields: Readonly<Record<string, string>>) => {
      const opened = awsAccounts({ endpoint })(fields)
      const verify = opened.verify.bind(opened)
      const counted: typeof verify = (signal) => {
        verifications++
        return verify(signal)
      }
      return Object.assign(opened, { verify: counted })
    }
    const programs = new Programs({
      ...{ systemNamespace, watchNamespace: fixture.namespace, clientOf },
      market: { offers: shippedOffers(), providers: { aws: { account } } },
    })
    closing.push(() => programs.stop())
    await programs.startOperator({}, { verification: { requestedPauseSeconds: 0.5 } })
    const facade = await programs.startFacade({ baseDomain: BASE_DOMAIN, logsDir: folder }, { clouds: ["aws"] })
    port = Number(new URL(facade.url).port)
    await eventually(async () => expect((await fetch(`${facade.url}/readyz`)).status).toBe(200))
  })
  afterAll(async () => {
    for (const close of closing.reverse()) await close()
  })

  async function check(more: Call = {}): Promise<ConnectionCheck> {
    const response = await call("/1/connections/main/check", { method: "POST", ...more })
    const result = (await response.json()) as ConnectionCheck
    expect([response.status, findErrors(ConnectionCheckSchema, result)]).toEqual([200, []])
    return result
  }
  const record = async () => (await (await call("/1/connections/main")).json()) as ConnectionRecord
  const readyOf = ({ conditions = [] }: ConnectionRecord) => conditions.find(({ type }) => type === "Ready")

  it("names the missing permissions, then passes; and says that the cloud refused, or did not answer", async () => {
    await withoutAuthentication(moto, 0)
    expect((await call("/1/connections", { body: { name: "main", type: "aws", ...key } })).status).toBe(201)
    const first = await eventually(async () => {
      const found = await check()
      // A provider that is slow is asked again.
      expect(found).toMatchObject({ name: "main", result: "incomplete", reason: "Verified" })
      return found
    })
    expect(first.message).toMatch(/^the credentials open aws \d{12}$/)
    expect(first.missing_permissions).toContain("ec2:RunInstances")
    expect(first.capabilities["vms"]).toMatchObject({ status: "False", reason: "PermissionsMissing" })
    expect((await record()).capabilities?.vms?.missing).toEqual(["ec2:RunInstances"])

    // Who adds the permission sees it with the next check, not after five minutes.
    const prices = ["ec2:DescribeSpotPriceHistory", "pricing:GetProducts"]
    await withoutAuthentication(moto, 1_000_000)
    await allow(moto, "berth", [...VM_ACTIONS, ...prices, "ec2:DescribeRegions"])
    await withoutAuthentication(moto, 0)
    expect(await check()).toMatchObject({ result: "passed", missing_permissions: [] })

    // Nothing listens there. The connection stays Ready for hours, but the check says what it found.
    endpoint = "http://127.0.0.1:9"
    expect(await check()).toMatchObject({
      result: "unreachable",
      message: expect.stringContaining("ECONNREFUSED"),
      missing_permissions: [],
    })
    expect(readyOf(await record())?.status).toBe("True")

    endpoint = moto.url
    await withoutAuthentication(moto, 1_000_000)
    await deleteKey(moto, "berth", key)
    await withoutAuthentication(moto, 0)
    const refused = await check()
    expect(refused).toMatchObject({ result: "refused", message: expect.stringContaining("InvalidClientTokenId") })
    expect(readyOf(await record())).toMatchObject({ status: "False", message: refused.message })
  })

  it("is shared by callers together, and answers kubectl too", async () => {
    await withoutAuthentication(moto, 1_000_000)
    verifications = 0
    const results = await Promise.all(Array.from({ length: 12 }, () => check()))
    expect(new Set(results.map(({ result }) => result))).toEqual(new Set(["passed"]))
    expect(verifications).toBeLessThanOrEqual(2)
    const annotate = [
      "annotate",
      "bconn",
      "main",
      "-n",
      fixture.namespace,
      "--overwrite",
      "berth.dev/check-requested=now",
    ]
    await kubectl(annotate)
    const path = "jsonpath={.status.lastCheck.request} {.status.lastCheck.reason}"
    await eventually(async () =>
      expect(await kubectl(["get", "bconn", "main", "-n", fixture.namespace, "-o", path])).toBe("now Verified"),
    )
    const { status } = await call("/1/connections/main/check", { method: "POST", key: fixture.keys.developer })
    expect([status, (await call("/1/connections/none/check", { method: "POST" })).status]).toEqual([403, 404])
  })
})
