// @ts-expect-error: it has no types
import { badPorts } from "undici/lib/web/fetch/constants.js"
import { describe, expect, it } from "vitest"
import { NO_TARGETS } from "../outbound/public-fetch.ts"
import { receiverFault } from "./receiver.ts"

const LOCAL = { hosts: ["localhost", "*.hooks.svc"], networks: ["127.0.0.0/8", "::1/128"] }

describe("an address that no message can reach", () => {
  it.each([
    ["http://ci.example.com:8080/berth?token=x", /^must begin with https:\/\/, not http:\/\/ci.example.com:8080: /],
    ["http://93.184.216.34", /https:/],
    ["https://10.0.0.5/berth", /^must have a public address, and 10.0.0.5 has none: ask an operator/],
    ["https://172.16.3.4", /public/],
    ["https://192.168.1.1:8443", /public/],
    ["https://100.64.0.1", /public/],
    ["https://127.0.0.1:9000", /127.0.0.1 has none/],
    ["https://127.1", /127.0.0.1 has none/],
    ["https://0x7f000001", /127.0.0.1 has none/],
    ["https://2130706433", /127.0.0.1 has none/],
    ["https://0177.0.0.1", /127.0.0.1 has none/],
    ["https://0.0.0.0", /public/],
    ["https://169.254.169.254/latest/meta-data", /169.254.169.254 has none/],
    ["https://168.63.129.16", /public/],
    ["https://224.0.0.1", /public/],
    ["https://[::1]", /\[::1\] has none/],
    ["https://[::]", /public/],
    ["https://[fe80::1]", /public/],
    ["https://[fd00:ec2::254]", /public/],
    ["https://[::ffff:10.0.0.1]", /public/],
    ["https://[::ffff:a9fe:a9fe]", /public/],
    ["https://[64:ff9b::a00:1]", /public/],
    ["https://[2002:a00:1::]", /public/],
    ["https://localhost:3000", /localhost has none/],
    ["https://LOCALHOST.", /public/],
    ["https://api.localhost", /public/],
    ["https://ci", /ci has none/],
    ["https://metadata.google.internal", /public/],
    ["https://printer.local", /public/],
    ["https://ci.invalid", /public/],
    ["https://ci..example.com", /^must have a host name such as ci.example.com, not ci..example.com/],
    [`https://${"a".repeat(64)}.com`, /host name/],
    [`https://${"a.".repeat(130)}com`, /host name/],
    ["https://ci.example.com:0", /^must have a port that HTTP clients use, such as 443, not 0/],
    ["https://ci.example.com:22", /port/],
    ["https://ci.example.com:25/", /port/],
  ])("%s is refused with the reason", (url, words) => {
    const fault = receiverFault(url, NO_TARGETS)
    expect(fault).toMatch(words)
    expect(fault).not.toMatch(/token|meta-data/)
  })

  it.each([
    "https://ci.example.com",
    "https://ci.example.com:8443/berth",
    "https://93.184.216.34",
    "https://[2606:4700::1]",
  ])("%s may be one", (url) => expect(receiverFault(url, NO_TARGETS)).toBeUndefined())

  it.each([
    "http://127.0.0.1:9000",
    "http://localhost:3000/x",
    "http://[::1]:9000",
    "http://a.hooks.svc",
    "https://ci",
  ])("%s may be one if an operator allows it", (url) => expect(receiverFault(url, LOCAL)).toBeUndefined())

  it.each(["http://10.0.0.1", "https://169.254.169.254", "http://ci.example.com", "http://localhost:22"])(
    "%s is refused if an operator allows others",
    (url) => expect(receiverFault(url, LOCAL)).toBeDefined(),
  )

  it("has one of the ports that the HTTP client blocks", () => {
    const isRefused = (port: number) => receiverFault(`https://ci.example.com:${port}`, NO_TARGETS) !== undefined
    const refused = Array.from({ length: 65_536 }, (_, port) => port).filter(isRefused)
    expect(refused).toEqual([0, ...(badPorts as string[]).map(Number)])
  })
})
