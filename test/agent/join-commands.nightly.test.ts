import { afterAll, beforeAll, expect, it } from "vitest"
import { joinCommands } from "../../src/core/machines/commands.ts"
import { until } from "../harness/eventually.ts"
import { startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { needing } from "../needing.ts"
import { OwnMachine } from "./own-machine.ts"
import { bootVm, missingForVms, NODE, prepareVms, removeVms, type Vm, type VmHost } from "./vm.ts"

/** Authority that no gateway has: the command only has to bring it to the agent. */
const CA = `-----BEGIN CERTIFICATE-----
MIIBczCCARmgAwIBAgIUM0Nl0QM1t0c3r5p1J2mY0mJ3u8kwCgYIKoZIzj0EAwIw
-----END CERTIFICATE-----
`

needing(await missingForVms()).describe("the commands with which a host joins", () => {
  const fixture = launchFixture("join-commands")
  let gateway: TestGateway
  let host: VmHost
  let vm: Vm

  beforeAll(async () => {
    host = await prepareVms()
    gateway = await startGateway(fixture, { host: host.address })
    // A host of someone: root needs no sudo there, and the engine has the agent's image.
    vm = await bootVm("#cloud-config\n", { programs: { "usr/bin/sudo": 'exec "$@"' } })
    const hasImage = async () => (await shell("docker image ls --quiet").catch(() => "")) !== ""
    await until("the engine has the image", hasImage, 120)
  }, 300_000)
  afterAll(async () => {
    await removeVms([vm])
    await gateway.close()
  })

  const shell = (script: string): Promise<string> => vm.exec(["/bin/sh", "-euc", script])

  /** Returns the commands of another join token of a machine. */
  async function commandsFor(machine: OwnMachine) {
    const { agentImage: image } = host
    return joinCommands({ gatewayUrl: gateway.url, gatewayCa: CA, token: await machine.token(), image })
  }

  /** Resolves when a host has joined with this token. @throws Error with the agent's log, which a command of the host prints */
  async function joined(machine: OwnMachine, joinNumber: number, log: string): Promise<void> {
    const isJoined = async () => (await machine.host())?.joinNumber === joinNumber
    await until(`a host has joined with token ${joinNumber}`, isJoined, 60).catch(async (cause: unknown) => {
      throw new Error(`no host has joined with token ${joinNumber}: ${await shell(log)}`, { cause })
    })
  }

  it("run the agent in the host's engine, also where an earlier command runs one", async () => {
    const machine = await OwnMachine.create(fixture)
    for (const number of [1, 2]) {
      await shell((await commandsFor(machine)).docker)
      await joined(machine, number, "docker logs berth-machine 2>&1")
    }
    expect(await shell("docker ps --format '{{.Names}}'")).toBe("berth-machine")
    await shell("docker rm --force berth-machine && rm -r /var/lib/berth/machine")
  })

  it("run the agent by systemd, with the program of the image", async () => {
    await shell(`container=$(docker create ${host.agentImage})
      docker cp "$container:${NODE}" /usr/bin/node && docker rm "$container"`)
    const machine = await OwnMachine.create(fixture)
    for (const number of [1, 2]) {
      await shell((await commandsFor(machine)).systemd)
      await joined(
        machine,
        number,
        "{ systemctl status berth-machine || true; } 2>&1; journalctl --unit berth-machine --no-pager",
      )
    }
    expect(await shell("systemctl is-active berth-machine")).toBe("active")
    expect(await shell("systemctl is-enabled berth-machine")).toBe("enabled")
    expect(await shell("systemd-analyze verify berth-machine.service 2>&1")).toBe("")
    expect(await shell("cat /opt/berth/gateway-ca.pem")).toBe(CA.trim())
    expect(await shell("stat --format %a /opt/berth/join.env")).toBe("600")
  })
})
