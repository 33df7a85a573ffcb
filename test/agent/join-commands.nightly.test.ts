import { afterAll, beforeAll, expect, it } from "vitest"
import { newCertificateAuthority } from "../../dev/controlplane/certificates.ts"
import { joinCommands } from "../../src/core/machines/commands.ts"
import { until } from "../harness/eventually.ts"
import { startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { needing } from "../needing.ts"
import { OwnMachine } from "./own-machine.ts"
import { bootVm, missingForVms, NODE, prepareVms, removeVms, type Vm, type VmHost } from "./vm.ts"

/** Authority of the gateway's certificate, which no host knows. */
const authority = newCertificateAuthority("private")

needing(await missingForVms()).describe("the commands with which a host joins", () => {
  const fixture = launchFixture("join-commands")
  let gateway: TestGateway
  let host: VmHost
  let vm: Vm

  beforeAll(async () => {
    host = await prepareVms()
    const issued = authority.issue({ commonName: "gateway", hosts: [host.address], seconds: 3600 })
    gateway = await startGateway(fixture, {
      host: host.address,
      tls: { cert: issued.certificate, key: issued.key },
    })
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
    return commandsWith(await machine.token())
  }

  function commandsWith(token: string) {
    const { agentImage: image } = host
    return joinCommands({ gatewayUrl: gateway.url, gatewayCa: authority.certificate, token, image })
  }

  const joins = () => gateway.answered.filter(({ kind }) => kind === "join").length

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

  it("start no agent in the engine again that Berth rejects", async () => {
    const machine = await OwnMachine.create(fixture)
    const before = joins()
    await shell(commandsWith(await machine.token({ expiresIn: -1 })).docker)
    const state = () => shell("docker inspect --format '{{.State.Status}} {{.State.ExitCode}}' berth-machine")
    await until("the agent has ended for good", async () => (await state()) === "exited 3", 60)
    expect(await shell("docker ps --all --format '{{.Status}}'")).toMatch(/^Exited \(3\)/)
    expect(await shell("docker logs berth-machine 2>&1")).toContain(
      `Berth rejects this host as machine ${machine.name}.`,
    )
    // The engine starts such containers at its own start, too.
    await shell("systemctl restart docker")
    expect([await state(), joins() - before]).toEqual(["exited 3", 1])
    await shell("docker rm berth-machine && rm -r /var/lib/berth/machine")
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
    expect(await shell("cat /opt/berth/gateway-ca.pem")).toBe(authority.certificate.trim())
    expect(await shell("stat --format %a /opt/berth/join.env")).toBe("600")
  })

  it("start no agent by systemd again that Berth rejects", async () => {
    const machine = await OwnMachine.create(fixture)
    const before = joins()
    await shell(commandsWith(await machine.token({ expiresIn: -1 })).systemd)
    const state = () => shell("systemctl show berth-machine --property ActiveState,Result,ExecMainStatus,NRestarts")
    const ended = "ExecMainStatus=3\nNRestarts=0\nActiveState=failed\nResult=exit-code"
    const lines = (text: string) => text.split("\n").sort()
    await until("the agent has ended for good", async () => (await state()).includes("ActiveState=failed"), 60)
    expect(lines(await state())).toEqual(lines(ended))
    expect(await shell("systemctl status berth-machine || true")).toContain(
      `Berth rejects this host as machine ${machine.name}.`,
    )
    expect(joins() - before).toBe(1)
  })
})
