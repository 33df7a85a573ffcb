import { describe, expect, it, vi } from "vitest"
import { readInvocation } from "./options.ts"

const OPERATOR = ["node", "berth", "operator", "--gateway-url", "https://gateway.test", "--agent-image", "berth:1"]

/** Returns the output of a program that prints and ends, because there is nothing to run. */
async function complaintOf(...args: string[]): Promise<string> {
  const printed = vi.spyOn(process.stderr, "write").mockReturnValue(true)
  vi.spyOn(process, "exit").mockImplementation(() => {
    throw new Error("exit")
  })
  await expect(readInvocation([...OPERATOR, ...args], "1.0.0")).rejects.toThrow("exit")
  return printed.mock.calls.flat().join("")
}

describe("networks by region", () => {
  it.each([
    ["--aws-networks", "awsNetworks", { "eu-central-1": { subnetIds: ["subnet-0a1b"] } }],
    ["--gcp-networks", "gcpNetworks", { "europe-west1": { network: "yard", subnetwork: "yard-europe" } }],
  ])("%s are read", async (flag, field, networks) => {
    const { options } = await readInvocation([...OPERATOR, flag, JSON.stringify(networks)], "1.0.0")
    expect(options).toHaveProperty(field, networks)
  })

  it.each([
    ["--aws-networks", '{ "europe-west1": {} }', /europe-west1: not a region of this cloud, such as eu-central-1/],
    ["--gcp-networks", '{ "eu-central-1": {} }', /eu-central-1: not a region of this cloud, such as europe-west1/],
    ["--gcp-networks", '{ "europe-west1": { "network": "Yard" } }', /europe-west1[/]network/],
    ["--gcp-networks", "europe-west1", /not valid JSON/],
  ])("%s %s is refused, with the reason", async (flag, text, reason) => {
    expect(await complaintOf(flag, text)).toMatch(reason)
  })
})
