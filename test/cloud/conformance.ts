import { randomUUID } from "node:crypto"
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest"
import type { Cloud, LaunchSpec, Vm, VmRef } from "../../src/clouds/cloud.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import {
  CapacityError,
  type CloudError,
  CredentialsError,
  InvalidRequestError,
  OutcomeUnknownError,
  QuotaError,
  TransientError,
} from "../../src/core/outbound/errors.ts"
import { NotLeaderError } from "../../src/operator/fence.ts"
import { eventually } from "../harness/eventually.ts"
import type { Act, FaultKind } from "./faults.ts"

/** Account of a cloud, as real as possible, with the facts that the suite needs. */
export interface CloudUnderTest {
  /** Small offer that can be launched. */
  offer: Offer
  /** User data of a VM that runs until it is terminated. */
  userData: string
  imageId?: string
  /** Opens the account again, as a restarted operator does. */
  open(): Promise<Cloud>
  /**
   * Returns how many machines were ever started for this Launch, counted independently of the Cloud. Waits for the
   * first.
   */
  countBoots(launch: string): Promise<number>
  /** Ends the VM from within or by the cloud, without `terminate`. */
  powerOff(vm: Vm): Promise<void>
  /**
   * Memory of the cloud for a terminated VM. `all` (the default): it is listed, and its launch returns it. `launch`: it
   * is no longer listed, but its launch still returns it. `nothing`: its launch creates another VM.
   */
  remembers?: "all" | "launch" | "nothing"
  /** Returns a valid reference to a VM that never existed. Default: the Launch's name as its id. */
  neverWas?(launch: string): VmRef
  close(): Promise<void>
}

/** Account under test whose cloud can be made to fail. */
export interface CloudWithFaults extends CloudUnderTest {
  /** Plans this fault for the next request of this act. */
  fail(act: Act, fault: FaultKind): void
  /** Removes the planned faults that have not happened. */
  mend(): void
  /** Limits the number of VMs in one page of a list. */
  limitPages(size: number): void
  /** Opens the account with credentials that are well formed and wrong. */
  openRefused(): Promise<Cloud>
  /** Requests and answers that violate the cloud's own description of its API. */
  violations(): readonly string[]
}

/** Open account, with the steps that its tests repeat. */
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

  /** Waits until the VM is terminated, and returns what the cloud still shows of it. */
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

/** Declares the tests of what the controller expects of every cloud. */
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

    it("creates a VM that carries its Launch, installation, region and creation time", async () => {
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

    it("returns the same VM for an identical launch: at once, later, and after a restart", async () => {
      const asked = spec()
      const restarted = await account.open()
      const answers = await Promise.all([cloud, cloud, restarted, cloud, restarted].map((each) => each.launch(asked)))
      answers.push(await restarted.launch(structuredClone(asked)))
      expect(new Set(answers.map((vm) => vm.id)).size).toBe(1)
      expect(await inState(asked.name, "running")).toMatchObject({ id: answers[0]?.id })
      expect(await account.countBoots(asked.name)).toBe(1)
    })

    it("rejects another spec under the same name, and the VM keeps running", async () => {
      const asked = spec()
      await cloud.launch(asked)
      const other = { ...asked, lifetimeSeconds: asked.lifetimeSeconds + 60 }
      await expect(cloud.launch(other)).rejects.toBeInstanceOf(InvalidRequestError)
      await inState(asked.name, "running")
      expect(await account.countBoots(asked.name)).toBe(1)
    })

    it("finds its VM under the same name after an upgrade that renders the user data differently", async () => {
      const asked = spec()
      const first = await cloud.launch(asked)
      const upgraded = await account.open()
      expect(await upgraded.launch({ ...asked, userData: `${asked.userData} ` })).toMatchObject({ id: first.id })
      expect(await inState(asked.name, "running")).toMatchObject({ id: first.id })
      expect(await account.countBoots(asked.name)).toBe(1)
    })

    it("lists only the VMs of the scope", async () => {
      const asked = spec({ installation: `${installation}-other` })
      await cloud.launch(asked)
      expect(await find(asked.name)).toEqual([])
      const others = await cloud.list({ installation: asked.installation, region: asked.offer.region })
      expect(others).toEqual([expect.objectContaining({ launch: asked.name })])
      expect(await cloud.list({ installation: asked.installation, region: "nowhere-1" })).toEqual([])
      for (const vm of others) await cloud.terminate(vm)
    })

    it("terminates a VM however often it is called, and never boots the VM again", async () => {
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

    it("terminates a VM immediately after its launch", async () => {
      const asked = spec()
      await cloud.terminate(await cloud.launch(asked))
      await gone(asked.name)
    })

    it("neither creates nor terminates a VM after the fence has fallen", async () => {
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

    it("terminates a VM that never existed without an error", async () => {
      const launch = `${randomUUID()}-1`
      const ref = account.neverWas?.(launch) ?? { id: launch, launch, region: account.offer.region }
      await expect(cloud.terminate(ref)).resolves.toBeUndefined()
    })

    it("shows a VM that powered itself off as terminated, or leaves no billed part of it", async () => {
      const asked = spec()
      const vm = await cloud.launch(asked)
      await account.powerOff(await inState(asked.name, "running"))
      const last = await gone(asked.name)
      if ((account.remembers ?? "all") !== "all") return
      expect(Date.parse(last?.terminationTime ?? "")).toBeGreaterThanOrEqual(Date.parse(vm.createTime))
    })

    it("returns the same account identity for the same credentials", async () => {
      const { account: first } = await cloud.verify()
      expect(first).not.toBe("")
      expect(await (await account.open()).verify()).toEqual({ account: first })
    })
  })
}

type ErrorClass = abstract new (...args: never[]) => CloudError

/** Errors that a launch throws for each fault. */
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

/** Errors that a list throws for each fault. A list changes nothing, so its outcome is never unknown. */
const LIST_FAULTS: readonly (readonly [FaultKind, ErrorClass])[] = [
  ["forbidden", CredentialsError],
  ["rateLimit", TransientError],
  ["serverError", TransientError],
  ["reset", TransientError],
  ["slow", TransientError],
]

/** Faults of a termination after which it must be retried. */
const TERMINATE_FAULTS = ["rateLimit", "serverError", "reset", "errorAfter", "lost", "slow"] as const

/** Declares the tests of what the controller expects when a cloud fails, before or after the effect of a request. */
export function describeFaults(name: string, start: () => Promise<CloudWithFaults>, declare = describe): void {
  declare(`${name} that fails`, () => {
    let harness: Harness<CloudWithFaults>
    let account: CloudWithFaults
    let cloud: Cloud

    beforeAll(async () => {
      account = await start()
      cloud = await account.open()
      harness = new Harness(account, cloud)
      // Creates what each account needs once, so that the fault affects the intended request.
      const first = harness.spec()
      await cloud.terminate(await cloud.launch(first))
    })
    afterAll(() => harness.close())
    afterEach(() => {
      account.mend()
      expect(account.violations()).toEqual([])
    })

    it.each(LAUNCH_FAULTS)(
      "launch: %s; the identical call then creates the VM or finds it",
      async (fault, expected) => {
        const asked = harness.spec()
        account.fail("launch", fault)
        const failure = await cloud.launch(asked).then(
          () => undefined,
          (error: unknown) => error,
        )
        // A cloud that has several zones for one offer skips the zone that rejects.
        if (failure !== undefined || fault !== "capacity") expect(failure).toBeInstanceOf(expected)
        expect((failure as CloudError | undefined)?.message).not.toBe("")
        const restarted = await account.open()
        const [vm, same] = [await restarted.launch(asked), await cloud.launch(asked)]
        expect(same.id).toBe(vm.id)
        expect((await harness.inState(asked.name, "running")).id).toBe(vm.id)
        expect(await account.countBoots(asked.name)).toBe(1)
        await cloud.terminate(vm)
      },
    )

    it.each(LIST_FAULTS)("list: %s; the next list shows everything", async (fault, expected) => {
      const asked = harness.spec()
      await cloud.launch(asked)
      account.fail("list", fault)
      await expect(harness.list()).rejects.toBeInstanceOf(expected)
      await cloud.terminate(await harness.inState(asked.name, "running"))
    })

    it.each(TERMINATE_FAULTS)("terminate: %s; the second call terminates the VM", async (fault) => {
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

    it("reports missing permissions to terminate a VM, and the VM keeps running", async () => {
      const asked = harness.spec()
      const vm = await cloud.launch(asked)
      account.fail("terminate", "forbidden")
      await expect(cloud.terminate(vm)).rejects.toBeInstanceOf(CredentialsError)
      expect((await harness.inState(asked.name, "running")).id).toBe(vm.id)
      await cloud.terminate(vm)
    })

    it("lists the VMs of all pages", async () => {
      const specs = Array.from({ length: 5 }, () => harness.spec())
      const made = await Promise.all(specs.map((each) => cloud.launch(each)))
      account.limitPages(2)
      const shown = await harness.list()
      for (const { id } of made) expect(shown.filter((vm) => vm.id === id)).toHaveLength(1)
      account.limitPages(1000)
      await Promise.all(made.map((vm) => cloud.terminate(vm)))
    })

    it("reports wrong credentials as such for every operation", async () => {
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
