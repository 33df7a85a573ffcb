import { describe, expect, it } from "vitest"
import { proxySettings } from "./proxy.ts"
import { withoutProxy } from "./vm-proxy.ts"

describe("the proxies of the environment", () => {
  it("are those of curl: a name in lower case comes first, and an empty one is none", () => {
    const both = { HTTPS_PROXY: "http://upper:1", https_proxy: "http://lower:1", HTTP_PROXY: "", NO_PROXY: "a.example" }
    expect(proxySettings(both)).toMatchObject({ httpsProxy: "http://lower:1" })
    expect(proxySettings(both)).not.toHaveProperty("httpProxy")
    expect(proxySettings({ NO_PROXY: "a.example" })).toBeUndefined()
    expect(proxySettings({})).toBeUndefined()
  })

  it("are never used for this machine and metadata services", () => {
    const hosts = withoutProxy(" b.example , .c.example 10.0.0.1").split(",")
    expect(hosts).toEqual(
      expect.arrayContaining(["b.example", ".c.example", "10.0.0.1", "localhost", "169.254.169.254"]),
    )
  })

  it.each(["proxy.example.com:3128", "socks5://s3cret", "http//s3cret"])("%s is refused without its text", (url) => {
    expect(() => proxySettings({ HTTPS_PROXY: url })).toThrow(/^HTTPS_PROXY is not the URL of a proxy/)
    expect(() => proxySettings({ HTTPS_PROXY: url })).not.toThrow(/s3cret/)
  })
})
