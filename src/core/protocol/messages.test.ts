import { randomBytes } from "node:crypto"
import fc from "fast-check"
import { describe, expect, it } from "vitest"
import {
  bootConfig,
  bootstrapToken,
  failureOnConsole,
  parseUserData,
  renderUserData,
  verifyBootstrapToken,
} from "./messages.ts"

const key = new Uint8Array(32).fill(7)

describe("bootstrap token", () => {
  it("has the same bytes for the same key and Launch, in every release", () => {
    // A constant: a VM of the previous release must still be admitted.
    expect(bootstrapToken(key, "0b7f-1")).toBe("DvmoDwVnd9Bt6LFyj4Zphyahs_L99zXM9kYX-roiPHA")
  })

  it("admits its own Launch and key only", () => {
    fc.assert(
      fc.property(fc.string(), fc.string(), (one, other) => {
        const token = bootstrapToken(key, one)
        expect(verifyBootstrapToken(key, one, token)).toBe(true)
        expect(verifyBootstrapToken(key, other, token)).toBe(one === other)
        expect(verifyBootstrapToken(randomBytes(32), one, token)).toBe(false)
      }),
    )
  })

  it("rejects tokens of any other length without an error", () => {
    const token = bootstrapToken(key, "a")
    for (const bad of ["", token.slice(1), `${token}=`, "ä".repeat(43), token.toUpperCase()]) {
      expect(verifyBootstrapToken(key, "a", bad)).toBe(false)
    }
  })

  it("rejects a key that is too short", () => {
    expect(() => bootstrapToken(new Uint8Array(31), "a")).toThrow(/31 bytes.*at least 32/)
  })
})

describe("failure on a console", () => {
  const line = (reason: string, message: string) => `berth-boot {"reason":"${reason}","message":"${message}"}`
  const failure = { reason: "GatewayUnreachable", message: "no way: curl: (6) Could not resolve host: a.example" }
  const written = line(failure.reason, failure.message)

  it("is the VM's last line, wherever other output begins and ends", () => {
    expect(failureOnConsole(`[ 1.2] ${written}[ 1.3] eth0: up`)).toEqual(failure)
    const last = { reason: "DiskFull", message: "no room" }
    expect(failureOnConsole(`${written}\r\n\r\n${line("DiskFull", "no room")}\r\n`)).toEqual(last)
  })

  it("no longer holds once the VM has found a way", () => {
    expect(failureOnConsole(`${written}\r\nberth-boot ok\r\n`)).toBeUndefined()
  })

  it.each([
    ["nothing", ""],
    ["output of others", '{"reason":"DiskFull","message":"x"} berth boot'],
    ["an unknown reason", line("Nonsense", "x")],
    ["a message with other characters than a VM writes", line("DiskFull", "<script>$&")],
    ["a message that is too long", line("DiskFull", "x".repeat(701))],
    ["a line that is cut", written.slice(0, -2)],
  ])("is not read from %s", (_, text) => {
    expect(failureOnConsole(text)).toBeUndefined()
  })
})

describe("user data", () => {
  const launch = {
    metadata: { name: "uid-1" },
    spec: {
      job: { namespace: "p", name: "j", uid: "uid" },
      number: 1,
      installation: "i",
      offer: {
        cloud: "local",
        region: "local",
        instanceType: "local",
        architecture: "amd64" as const,
        cpu: 1,
        memoryGib: 1,
        provisioning: "onDemand" as const,
        hourlyPriceUsd: 0,
        minimumBilledSeconds: 0,
      },
      run: { image: "busybox" },
      gatewayUrl: "https://berth.example",
      bootDeadlineSeconds: 600,
      startDeadlineSeconds: 600,
      lifetimeSeconds: 3600,
    },
  }

  it("round-trips, with and without a CA", () => {
    for (const gatewayCa of [undefined, "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n"]) {
      const spec = gatewayCa === undefined ? launch.spec : { ...launch.spec, gatewayCa }
      const config = bootConfig({ ...launch, spec }, key)
      expect(parseUserData(renderUserData(config))).toEqual(config)
      expect(config.bootstrapToken).toBe(bootstrapToken(key, "uid-1"))
    }
  })

  it("names the wrong field and does not show the token", () => {
    const config = bootConfig(launch, key)
    const bad = JSON.stringify({ ...config, lifetimeSeconds: "soon" })
    expect(() => parseUserData(bad)).toThrow(/\/lifetimeSeconds must be integer/)
    for (const text of [bad, renderUserData(config).slice(0, -5)]) {
      let message = ""
      try {
        parseUserData(text)
      } catch (error) {
        message = String(error)
      }
      expect(message).not.toBe("")
      expect(message).not.toContain(config.bootstrapToken)
    }
  })
})
