import { randomUUID } from "node:crypto"
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest"
import type { Offer } from "../../src/apis/offer.ts"
import {
  CapacityError,
  type CloudError,
  CredentialsError,
  InvalidRequestError,
  OutcomeUnknownError,
  QuotaError,
  TransientError,
} from "../../src/cloud/errors.ts"
import type { Cloud, LaunchSpec, Vm, VmRef } from "../../src/cloud/provider.ts"
import { NotLeaderError } from "../../src/controllers/fence.ts"
import { eventually } from "./eventually.ts"
import type { Act, FaultKind } from "./faults.ts"

/** One account of a cloud, as real as it is to be had, and what the suite can't know of it. */
export interface CloudUnderTest {
  /** Something small that can be launched. */
  offer: Offer
  /** User data of a VM that stays up until it is ended. */
  userData: string
  imageId?: string
  /** Opens the account anew, as a restarted operator does. */
  open(): Promise<Cloud>
  /** How many machines were ever started for this Launch, by another witness than the Cloud; waits for the first. */
  countBoots(launch: string): Promise<number>
  /** Ends the VM from within or by the cloud's own doing, without `terminate`. */
  powerOff(vm: Vm): Promise<void>
  /**
   * What the cloud still knows of a VM that is gone. `all` (the default): it is listed, and its launch is answered with
   * it. `launch`: it is listed no more, but its launch is still answered with it. `nothing`: its launch makes another.
   */
  remembers?: "all" | "launch" | "nothing"
  /** A reference of the cloud's own form to a VM that never was. Default: the Launch's name as its id. */
  neverWas?(launch: string): VmRef
  close(): Promise<void>
}

/** An account under test whose cloud can be made to fail. */
export interface CloudWithFaults extends CloudUnderTest {
  /** The next request of this act meets this. */
  fail(act: Act, fault: FaultKind): void
  /** Forgets what was planned and has not happened. */
  mend(): void
  /** Lists show no more than so many VMs in one page. */
  limitPages(size: number): void
  /** Opens the account with credentials that are well formed and wrong. */
  openRefused(): Promise<Cloud>
  /** Everything that was asked or answered against the cloud's own description of its API. */
  violations(): readonly string[]
}

/** An account that was opened, and what tests of it say again and again. */
class Harness<T extends CloudUnderTest> {
  readonly installation = `test-${randomUUID().slice(0, 8)}`
  readonly account: T
  readonly cloud: Cloud

  constructor(account: T, cloud: Cloud) {
    this.account = account
    this.cloud = cloud
  }

  spec(overrides: Partial<LaunchSpec> = {}): LaunchSpec {
    const { offer, userData, imageId } = this.account
    return {
      name: `${randomUUID()}-1`,
      installation: this.installation,
      tags: { "berth.dev/project": "conformance" },
      offer,
      userData,
      lifetimeSeconds: 3600,
      ...(imageId !== undefined && { imageId }),
      ...overrides,
    }
  }

  list(): Promise<Vm[]> {
    return this.cloud.list({ installation: this.installation, region: this.account.offer.region })
  }

  async find(launch: string): Promise<Vm[]> {
    return (await this.list()).filter((vm) => vm.launch === launch)
  }

  inState(launch: string, state: Vm["state"]): Promise<Vm> {
    return eventually(async () => {
      const found = await this.find(launch)
      expect(found).toEqual([expect.objectContaining({ state })])
      return found[0] as Vm
    })
  }

  /** Waits until the VM is gone, and tells what is still shown of it. */
  gone(launch: string): Promise<Vm | undefined> {
    if ((this.account.remembers ?? "all") === "all") return this.inState(launch, "terminated")
    return eventually(async () => {
      const found = await this.find(launch)
      expect(found.filter(({ state }) => state !== "terminated")).toEqual([])
      return found[0]
    })
  }

  async close(): Promise<void> {
    for (const vm of await this.list()) await this.cloud.terminate(vm)
    await eventually(async () => expect((await this.list()).filter((vm) => vm.state !== "terminated")).toEqual([]))
    await this.account.close()
  }
}

/** What the controller relies on, of whatever cloud: run it for each. */
export function describeCloud(name: string, start: () => Promise<CloudUnderTest>, declare = describe): void {
  declare(`${name} is a Cloud`, () => {
    let harness: Harness<CloudUnderTest>
    let account: CloudUnderTest
    let cloud: Cloud
    let installation: string

    beforeAll(async () => {
      account = await start()
      cloud = await account.open()
      harness = new Harness(account, cloud)
      installation = harness.installation
    })
    afterAll(() => harness.close())

    const spec = (overrides: Partial<LaunchSpec> = {}) => harness.spec(overrides)
    const find = (launch: string) => harness.find(launch)
    const inState = (launch: string, state: Vm["state"]) => harness.inState(launch, state)
    const gone = (launch: string) => harness.gone(launch)

    it("makes a VM that carries its Launch, installation, region and time of creation", async () => {
      const asked = spec()
      const made = await cloud.launch(asked)
      const facts = { id: made.id, launch: asked.name, installation, region: asked.offer.region }
      expect(made).toMatchObject(facts)
      expect(["booting", "running"]).toContain(made.state)
      const shown = await inState(asked.name, "running")
      expect(shown).toMatchObject({ ...facts, createTime: made.createTime })
      expect(shown.createTime).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/)
      expect(shown.terminationTime).toBeUndefined()
    })

    it("answers an identical launch with the same VM, at once, later, and after a restart", async () => {
      const asked = spec()
      const restarted = await account.open()
      const answers = await Promise.all([cloud, cloud, restarted, cloud, restarted].map((each) => each.launch(asked)))
      answers.push(await restarted.launch(structuredClone(asked)))
      expect(new Set(answers.map((vm) => vm.id)).size).toBe(1)
      expect(await inState(asked.name, "running")).toMatchObject({ id: answers[0]?.id })
      expect(await account.countBoots(asked.name)).toBe(1)
    })

    it("refuses another spec under the same name, and the VM lives on", async () => {
      const asked = spec()
      await cloud.launch(asked)
      const other = { ...asked, lifetimeSeconds: asked.lifetimeSeconds + 60 }
      await expect(cloud.launch(other)).rejects.toBeInstanceOf(InvalidRequestError)
      await inState(asked.name, "running")
      expect(await account.countBoots(asked.name)).toBe(1)
    })

    it("finds its VM under the same name when its user data is rendered in other words by now, as after an upgrade", async () => {
      const asked = spec()
      const first = await cloud.launch(asked)
      const upgraded = await account.open()
      expect(await upgraded.launch({ ...asked, userData: `${asked.userData} ` })).toMatchObject({ id: first.id })
      expect(await inState(asked.name, "running")).toMatchObject({ id: first.id })
      expect(await account.countBoots(asked.name)).toBe(1)
    })

    it("lists only what the scope names", async () => {
      const asked = spec({ installation: `${installation}-other` })
      await cloud.launch(asked)
      expect(await find(asked.name)).toEqual([])
      const others = await cloud.list({ installation: asked.installation, region: asked.offer.region })
      expect(others).toEqual([expect.objectContaining({ launch: asked.name })])
      expect(await cloud.list({ installation: asked.installation, region: "nowhere-1" })).toEqual([])
      for (const vm of others) await cloud.terminate(vm)
    })

    it("ends a VM, however often it is asked, and never boots it again", async () => {
      const asked = spec()
      const vm = await cloud.launch(asked)
      await inState(asked.name, "running")
      expect(await account.countBoots(asked.name)).toBe(1)
      await Promise.all([cloud.terminate(vm), cloud.terminate(vm), (await account.open()).terminate(vm)])
      const last = await gone(asked.name)
      const { remembers = "all" } = account
      if (remembers === "all") expect(last?.terminationTime).toBeDefined()
      await cloud.terminate(vm)
      if (remembers !== "nothing") {
        expect(await cloud.launch(asked)).toMatchObject({ id: vm.id, state: "terminated" })
        expect(await find(asked.name)).toEqual(last === undefined ? [] : [last])
        expect(await account.countBoots(asked.name)).toBe(1)
      }
    })

    it("ends a VM that is asked to end as soon as it is launched", async () => {
      const asked = spec()
      await cloud.terminate(await cloud.launch(asked))
      await gone(asked.name)
    })

    it("neither makes nor ends a VM for who may not act any more", async () => {
      const late = (): never => {
        throw new NotLeaderError("another one leads")
      }
      const asked = spec()
      await expect(cloud.launch(asked, late)).rejects.toBeInstanceOf(NotLeaderError)
      expect(await find(asked.name)).toEqual([])
      const vm = await cloud.launch(asked)
      await inState(asked.name, "running")
      await expect(cloud.terminate(vm, late)).rejects.toBeInstanceOf(NotLeaderError)
      await inState(asked.name, "running")
      expect(await account.countBoots(asked.name)).toBe(1)
    })

    it("has no quarrel with the end of a VM that never was", async () => {
      const launch = `${randomUUID()}-1`
      const ref = account.neverWas?.(launch) ?? { id: launch, launch, region: account.offer.region }
      await expect(cloud.terminate(ref)).resolves.toBeUndefined()
    })

    it("shows a VM that went off by itself as terminated, or leaves nothing of it that is billed", async () => {
      const asked = spec()
      const vm = await cloud.launch(asked)
      await account.powerOff(await inState(asked.name, "running"))
      const last = await gone(asked.name)
      if ((account.remembers ?? "all") !== "all") return
      expect(Date.parse(last?.terminationTime ?? "")).toBeGreaterThanOrEqual(Date.parse(vm.createTime))
    })

    it("tells whose credentials it was opened with, the same each time", async () => {
      const { account: first } = await cloud.verify()
      expect(first).not.toBe("")
      expect(await (await account.open()).verify()).toEqual({ account: first })
    })
  })
}

type ErrorClass = abstract new (...args: never[]) => CloudError

/** What a launch that met a fault throws. */
const LAUNCH_FAULTS: readonly (readonly [FaultKind, ErrorClass])[] = [
  ["capacity", CapacityError],
  ["quota", QuotaError],
  ["forbidden", CredentialsError],
  ["invalid", InvalidRequestError],
  ["rateLimit", TransientError],
  ["serverError", OutcomeUnknownError],
  ["reset", OutcomeUnknownError],
  ["errorAfter", OutcomeUnknownError],
  ["lost", OutcomeUnknownError],
  ["slow", OutcomeUnknownError],
]

/** What a list that met a fault throws: it changes nothing, so its outcome is never unknown. */
const LIST_FAULTS: readonly (readonly [FaultKind, ErrorClass])[] = [
  ["forbidden", CredentialsError],
  ["rateLimit", TransientError],
  ["serverError", TransientError],
  ["reset", TransientError],
  ["slow", TransientError],
]

/** Faults of ending a VM that leave it to be ended again. */
const TERMINATE_FAULTS = ["rateLimit", "serverError", "reset", "errorAfter", "lost", "slow"] as const

/** What the controller relies on when a cloud fails, before or after it has done what it was asked. */
export function describeFaults(name: string, start: () => Promise<CloudWithFaults>, declare = describe): void {
  declare(`${name} that fails`, () => {
    let harness: Harness<CloudWithFaults>
    let account: CloudWithFaults
    let cloud: Cloud

    beforeAll(async () => {
      account = await start()
      cloud = await account.open()
      harness = new Harness(account, cloud)
      // Whatever is made once for an account is there, so that a fault meets what it is meant for.
      const first = harness.spec()
      await cloud.terminate(await cloud.launch(first))
    })
    afterAll(() => harness.close())
    afterEach(() => {
      account.mend()
      expect(account.violations()).toEqual([])
    })

    it.each(LAUNCH_FAULTS)("launch: %s; the identical call then makes the VM or finds it", async (fault, expected) => {
      const asked = harness.spec()
      account.fail("launch", fault)
      const failure = await cloud.launch(asked).then(
        () => undefined,
        (error: unknown) => error,
      )
      // A cloud that has several places of its own for one offer passes over the one that refuses.
      if (failure !== undefined || fault !== "capacity") expect(failure).toBeInstanceOf(expected)
      expect((failure as CloudError | undefined)?.message).not.toBe("")
      const restarted = await account.open()
      const [vm, same] = [await restarted.launch(asked), await cloud.launch(asked)]
      expect(same.id).toBe(vm.id)
      expect((await harness.inState(asked.name, "running")).id).toBe(vm.id)
      expect(await account.countBoots(asked.name)).toBe(1)
      await cloud.terminate(vm)
    })

    it.each(LIST_FAULTS)("list: %s; the next one shows everything", async (fault, expected) => {
      const asked = harness.spec()
      await cloud.launch(asked)
      account.fail("list", fault)
      await expect(harness.list()).rejects.toBeInstanceOf(expected)
      await cloud.terminate(await harness.inState(asked.name, "running"))
    })

    it.each(TERMINATE_FAULTS)("terminate: %s; asked again the VM ends", async (fault) => {
      const asked = harness.spec()
      await cloud.launch(asked)
      const vm = await harness.inState(asked.name, "running")
      account.fail("terminate", fault)
      const failure = await cloud.terminate(vm).catch((error: unknown) => error)
      const classes = [TransientError, OutcomeUnknownError]
      expect(classes.some((each) => failure instanceof each)).toBe(true)
      await cloud.terminate(vm)
      await harness.gone(asked.name)
    })

    it("refuses to end a VM for who may not, and the VM lives on", async () => {
      const asked = harness.spec()
      const vm = await cloud.launch(asked)
      account.fail("terminate", "forbidden")
      await expect(cloud.terminate(vm)).rejects.toBeInstanceOf(CredentialsError)
      expect((await harness.inState(asked.name, "running")).id).toBe(vm.id)
      await cloud.terminate(vm)
    })

    it("lists every page", async () => {
      const specs = Array.from({ length: 5 }, () => harness.spec())
      const made = await Promise.all(specs.map((each) => cloud.launch(each)))
      account.limitPages(2)
      const shown = await harness.list()
      for (const { id } of made) expect(shown.filter((vm) => vm.id === id)).toHaveLength(1)
      account.limitPages(1000)
      await Promise.all(made.map((vm) => cloud.terminate(vm)))
    })

    it("says of wrong credentials that they are wrong, whatever is asked", async () => {
      const refused = await account.openRefused()
      const { region } = account.offer
      const ref = account.neverWas?.("never-1") ?? { id: "never-1", launch: "never-1", region }
      for (const act of [
        () => refused.verify(),
        () => refused.launch(harness.spec()),
        () => refused.list({ installation: harness.installation, region }),
        () => refused.terminate(ref),
      ]) {
        await expect(act()).rejects.toBeInstanceOf(CredentialsError)
      }
    })
  })
}
