import { describe, expect, it } from "vitest"
import { redirectFault } from "./redirect.ts"

const DOMAIN = { baseDomain: "Berth.test", hasProjectHosts: true }

/** Asks from the page of the redirect address itself by default. */
function fault(address: string, more: { host?: string; origin?: string; hasProjectHosts?: boolean } = {}) {
  const url = URL.parse(address)
  return redirectFault(address, {
    host: url?.host ?? "",
    ...(url !== null && { origin: url.origin }),
    ...DOMAIN,
    ...more,
  })
}

describe("a redirect address", () => {
  it.each([
    "https://berth.test/console/signed-in",
    "https://berth.test:8443/console/signed-in",
    "https://reports-77ab.berth.test/console/signed-in",
    "http://localhost:8080/console/signed-in",
    "http://127.0.0.1:8080/console/signed-in",
    "http://[::1]:8080/console/signed-in",
  ])("%s is the console", (address) => {
    expect(fault(address)).toBeUndefined()
  })

  it("is the console for a client that sends no Origin, and a host in capitals", () => {
    expect(redirectFault("https://berth.test/console/signed-in", { host: "BERTH.test", ...DOMAIN })).toBeUndefined()
  })

  it.each([
    ["on a host that only the request names", "https://evil.example/console/signed-in", {}, /host Berth\.test/],
    ["on a host that ends like the domain", "https://evilberth.test/console/signed-in", {}, /host Berth\.test/],
    ["below a host of a project", "https://a.b.berth.test/console/signed-in", {}, /host Berth\.test/],
    ["of a project without hosts", "https://a.berth.test/console/signed-in", { hasProjectHosts: false }, /host Berth/],
    ["without TLS", "http://berth.test/console/signed-in", {}, /https/],
    ["of another scheme", "javascript:alert(1)//console/signed-in", {}, /own address/],
    ["that is a page of ours", "https://berth.test/console/projects/a", {}, /own address/],
    ["with a query", "https://berth.test/console/signed-in?a=b", {}, /own address/],
    ["with a fragment", "https://berth.test/console/signed-in#a", {}, /own address/],
    ["with a user", "https://berth.test@evil.example/console/signed-in", {}, /own address/],
    ["with another spelling", "https://BERTH.test/console/signed-in", {}, /own address/],
    ["that is none", "console/signed-in", {}, /own address/],
    ["of another project", "https://a.berth.test/console/signed-in", { host: "b.berth.test" }, /host of the request/],
    ["of another port", "http://localhost:1/console/signed-in", { host: "localhost:2" }, /host of the request/],
    ["of another page", "https://berth.test/console/signed-in", { origin: "https://evil.example" }, /origin/],
    ["of a page without an origin", "https://berth.test/console/signed-in", { origin: "null" }, /origin/],
  ])("%s is rejected", (_which, address, more, reason) => {
    expect(fault(address, more)).toMatch(reason)
  })
})
