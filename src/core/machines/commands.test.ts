import { execFileSync } from "node:child_process"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, expect, it } from "vitest"
import { joinToken } from "../protocol/machines.ts"
import { joinCommands, joinCommandsOf } from "./commands.ts"

const claims = { namespace: "one", name: "gpu-1", uid: "u", number: 1, expires: 1 }
const token = joinToken(new Uint8Array(32), claims)
const options = { gatewayUrl: "https://berth.example.com", token, image: "ghcr.io/berth-dev/berth-agent:1.0" }
const CA = "-----BEGIN CERTIFICATE-----\nMIIB+/=\n-----END CERTIFICATE-----\n"

/** Returns the words of each program that a shell starts for these commands, unless its output is not shown. None runs. */
function wordsIn(commands: string, cwd = "/"): string[][] {
  const stub = `sudo() { printf '%s\\0' "$@"; printf '\\n\\0'; }`
  const printed = execFileSync("/bin/sh", ["-euc", `${stub}\n${commands}`], { encoding: "utf8", cwd })
  return printed.split("\n\0").flatMap((call) => (call === "" ? [] : [call.split("\0").slice(0, -1)]))
}

describe("the command for Docker", () => {
  it("runs the agent with the engine's socket, for ever", () => {
    const [words = []] = wordsIn(joinCommands(options).docker)
    expect(words.slice(0, 7)).toEqual(["docker", "run", "--detach", "--name", "berth-machine", "--restart", "always"])
    expect(words).toContain("/var/run/docker.sock:/var/run/docker.sock")
    expect(words).toContain(`BERTH_JOIN_TOKEN=${token}`)
    expect(words.slice(words.indexOf(options.image))).toEqual([
      ...[options.image, "host", "--gateway", options.gatewayUrl, "--data-dir", "/var/lib/berth/machine"],
    ])
  })

  it("gives it the authorities as a file", () => {
    const calls = wordsIn(joinCommands({ ...options, gatewayCa: CA }).docker)
    const path = "/var/lib/berth/machine/gateway-ca.pem"
    expect(calls[0]).toEqual(["install", "-D", "-m", "0600", "/dev/stdin", path])
    expect(calls[1]?.slice(-2)).toEqual(["--gateway-ca", path])
  })

  it.each(["https://berth.test/$(touch x)", "https://berth.test/'; echo \"`id`", "https://berth.test/a b\\"])(
    "hands over %s as it is",
    (gatewayUrl) => {
      const [words = []] = wordsIn(joinCommands({ ...options, gatewayUrl }).docker)
      expect(words[words.indexOf("--gateway") + 1]).toBe(gatewayUrl)
    },
  )
})

describe("the commands for systemd", () => {
  it("install a unit that starts the agent again, unless Berth rejects it", () => {
    const { systemd } = joinCommands({ ...options, gatewayCa: CA })
    expect(wordsIn(systemd).map((words) => words.at(-1))).toEqual([
      ...["/opt/berth", "/opt/berth", "/opt/berth/gateway-ca.pem", "/opt/berth/join.env"],
      ...["/etc/systemd/system/berth-machine.service", "daemon-reload", "berth-machine", "berth-machine"],
    ])
    expect(systemd).toContain(
      'ExecStart=/usr/bin/env node /opt/berth/agent.mjs host --gateway "https://berth.example.com" ' +
        "--data-dir /var/lib/berth/machine --gateway-ca /opt/berth/gateway-ca.pem\n",
    )
    expect(systemd).toContain("RestartPreventExitStatus=3\n")
    // Only root may read it.
    expect(systemd).toContain(`printf %s 'BERTH_JOIN_TOKEN=${token}\n' | sudo install -D -m 0600`)
  })

  it("take the program of the image, or of the present folder if that has one", async () => {
    const folder = await mkdtemp(join(tmpdir(), "berth-join-"))
    const { systemd } = joinCommands(options)
    const copies = () => wordsIn(systemd, folder).filter((words) => words.includes("/opt/berth"))
    expect(copies().map(([program]) => program)).toEqual(["install", "docker"])
    for (const file of ["agent.mjs", "package.json"]) await writeFile(join(folder, file), "")
    expect(copies()[1]).toEqual(["install", "-m", "0644", "-t", "/opt/berth", "agent.mjs", "package.json"])
    await rm(folder, { recursive: true })
  })

  it("escape what systemd would expand", () => {
    const { systemd } = joinCommands({ ...options, gatewayUrl: 'https://berth.test/$HOME%h"' })
    expect(systemd).toContain('--gateway "https://berth.test/$$HOME%%h\\""')
  })
})

describe("an installation", () => {
  const { image, gatewayUrl } = options

  it("puts its authorities into the commands", () => {
    expect(joinCommandsOf({ image, gatewayUrl, gatewayCa: CA })(token)).toEqual(
      joinCommands({ ...options, gatewayCa: CA }),
    )
  })

  it.each([
    [{ image }, /lacks --gateway-url \(BERTH_GATEWAY_URL\)\./],
    [{ gatewayUrl }, /lacks --agent-image \(BERTH_AGENT_IMAGE\)\./],
    [{}, /lacks --gateway-url \(BERTH_GATEWAY_URL\) and --agent-image/],
  ])("says what it lacks for a command: %j", (facts, expected) => {
    expect(joinCommandsOf(facts)(token)).toEqual({ note: expect.stringMatching(expected) })
  })
})
