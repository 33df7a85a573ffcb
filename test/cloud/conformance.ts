import { randomUUID } from "node:crypto"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { Offer } from "../../src/apis/offer.ts"
import { InvalidRequestError } from "../../src/cloud/errors.ts"
import type { Cloud, LaunchSpec, Vm } from "../../src/cloud/provider.ts"
import { eventually } from "./eventually.ts"

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
  close(): Promise<void>
}

/** What the controller relies on, of whatever cloud: run it for each. */
export function describeCloud(name: string, start: () => Promise<CloudUnderTest>): void {
  describe(`${name} is a Cloud`, () => {
    let account: CloudUnderTest
    let cloud: Cloud
    const installation = `test-${randomUUID().slice(0, 8)}`

    beforeAll(async () => {
      account = await start()
      cloud = await account.open()
    })
    afterAll(async () => {
      for (const vm of await list()) await cloud.terminate(vm)
      await eventually(async () => expect((await list()).filter((vm) => vm.state !== "terminated")).toEqual([]))
      await account.close()
    })

    const spec = (overrides: Partial<LaunchSpec> = {}): LaunchSpec => ({
      name: `${randomUUID()}-1`,
      installation,
      tags: { "berth.dev/project": "conformance" },
      offer: account.offer,
      userData: account.userData,
      lifetimeSeconds: 3600,
      ...(account.imageId !== undefined && { imageId: account.imageId }),
      ...overrides,
    })
    const list = () => cloud.list({ installation, region: account.offer.region })
    const find = async (launch: string) => (await list()).filter((vm) => vm.launch === launch)
    const inState = (launch: string, state: Vm["state"]) =>
      eventually(async () => {
        const found = await find(launch)
        expect(found).toEqual([expect.objectContaining({ state })])
        return found[0] as Vm
      })

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
      const other = { ...asked, userData: `${asked.userData} ` }
      await expect(cloud.launch(other)).rejects.toBeInstanceOf(InvalidRequestError)
      await inState(asked.name, "running")
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
      const gone = await inState(asked.name, "terminated")
      expect(gone.terminationTime).toBeDefined()
      await cloud.terminate(vm)
      expect(await cloud.launch(asked)).toMatchObject({ id: vm.id, state: "terminated" })
      expect(await find(asked.name)).toEqual([gone])
      expect(await account.countBoots(asked.name)).toBe(1)
    })

    it("ends a VM that is asked to end as soon as it is launched", async () => {
      const asked = spec()
      await cloud.terminate(await cloud.launch(asked))
      await inState(asked.name, "terminated")
    })

    it("has no quarrel with the end of a VM that never was", async () => {
      const launch = `${randomUUID()}-1`
      const ref = { id: launch, launch, region: account.offer.region }
      await expect(cloud.terminate(ref)).resolves.toBeUndefined()
    })

    it("shows a VM that went off by itself as terminated", async () => {
      const asked = spec()
      await cloud.launch(asked)
      await account.powerOff(await inState(asked.name, "running"))
      const gone = await inState(asked.name, "terminated")
      expect(Date.parse(gone.terminationTime ?? "")).toBeGreaterThanOrEqual(Date.parse(gone.createTime))
    })

    it("tells whose credentials it was opened with, the same each time", async () => {
      const { account: first } = await cloud.verify()
      expect(first).not.toBe("")
      expect(await (await account.open()).verify()).toEqual({ account: first })
    })
  })
}
