import { afterAll, beforeAll, expect } from "vitest"
import { renderCloudInit } from "../../src/clouds/cloud-init.ts"
import { bootConfig } from "../../src/core/protocol/messages.ts"
import { docker, followProgress } from "../agent/images.ts"
import { bootVm, missingForVms, NODE, prepareVms, removeVms, type Vm, type VmHost } from "../agent/vm.ts"
import { until } from "../harness/eventually.ts"
import { BOOTSTRAP_KEY, startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { needing } from "../needing.ts"
import { missingForRegistry, type OpenRegistry, startOpenRegistry } from "../registry.ts"
import { type ForwardProxy, missingForProxy, startForwardProxy } from "./forward-proxy.ts"
import { type Front, forwarding, startFront } from "./front.ts"

/** A VM that reaches its gateway and registry only through a proxy, and that has to trust a private authority for both. */

const ADDRESS = "127.9.8.8"
const fixture = launchFixture("proxied-vm")
const vms: Vm[] = []
let host: VmHost
let gateway: TestGateway
let registry: OpenRegistry
let front: Front
let proxy: ForwardProxy
const missing = (await missingForVms()) ?? missingForRegistry() ?? missingForProxy()

beforeAll(async () => {
  if (missing !== undefined) return
  host = await prepareVms()
  gateway = await startGateway(fixture)
  registry = await startOpenRegistry(() => false)
  front = await startFront(ADDRESS, {
    "berth.example.com": forwarding(() => gateway.url),
    "registry.example.com": forwarding(() => `http://${registry.host}`),
  })
  const hosts = { "berth.example.com": ADDRESS, "registry.example.com": ADDRESS }
  proxy = await startForwardProxy(hosts, ["vm"], host.address)
  const pushed = { repo: `${registry.host}/agent`, tag: "1" }
  await docker.getImage(host.agentImage).tag(pushed)
  const image = docker.getImage(`${pushed.repo}:1`)
  await followProgress(await image.push({ authconfig: {} }))
  await image.remove()
})
afterAll(async () => {
  await removeVms(vms)
  await proxy?.stop()
  await front?.close()
  await registry?.stop()
  await gateway?.close()
})

needing(missing).it("a VM pulls its images and reports through the proxy, whose names it can't resolve", async () => {
  const agentImage = "registry.example.com/agent:1"
  const launch = await fixture.launch({ image: agentImage, command: [NODE, "-e", "console.log('ran')"] })
  const trust = { gatewayUrl: "https://berth.example.com", gatewayCa: front.authority.certificate }
  const config = bootConfig({ metadata: launch.metadata, spec: { ...launch.spec, ...trust } }, BOOTSTRAP_KEY)
  const proxied = { proxy: { url: proxy.urlFor("vm"), noProxy: "mirror.example.com" } }
  const userData = renderCloudInit(config, { system: "ecs", agentImage, bootDeadlineSeconds: 300, ...proxied })
  const vm = await bootVm(userData, { images: false })
  vms.push(vm)
  await until("the VM is off", async () => !(await vm.isOn()), 150)
  expect((await fixture.agentOf(launch))?.finish, await vm.console()).toMatchObject({ reason: "Succeeded" })
  // curl's check of the gateway, the agent's reports, and the pulls of the engine.
  expect((await proxy.requestsOf("vm")).sort()).toEqual(["berth.example.com:443", "registry.example.com:443"])
  expect(front.requests).toEqual(expect.arrayContaining(["registry.example.com /v2/agent/manifests/1"]))
})
