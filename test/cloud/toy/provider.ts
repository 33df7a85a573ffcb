import type { Cloud, Vm } from "../../../src/clouds/cloud.ts"
import type { OpenProvider } from "../../../src/clouds/registry.ts"
import { OutcomeUnknownError, TransientError } from "../../../src/core/outbound/errors.ts"

/** The account is the address of a simulated cloud (`bench/simulated-cloud.ts`), whose VMs exist over HTTP. */
export const open: OpenProvider = () => ({
  account: ({ toy_account: url = "" }) => ({ verify: () => toysAt(url).verify() }),
  region: ({ toy_account: url = "" }) => toysAt(url),
})

function toysAt(url: string): Cloud {
  const send = async (method: string, path: string, body?: object): Promise<unknown> => {
    try {
      return await (await fetch(`${url}${path}`, { method, ...(body && { body: JSON.stringify(body) }) })).json()
    } catch (error) {
      // A VM may have been created. All else may be repeated.
      const Unanswered = method === "PUT" ? OutcomeUnknownError : TransientError
      throw new Unanswered("NoAnswer", `the toy cloud does not answer ${method} ${path}`, { cause: error })
    }
  }
  return {
    launch: async ({ name, installation, offer: { region }, userData }) =>
      (await send("PUT", `/${name}`, { name, installation, region, userData })) as Vm,
    list: async (scope) => (await send("GET", `/?${new URLSearchParams({ ...scope })}`)) as Vm[],
    terminate: async ({ launch }) => {
      await send("DELETE", `/${launch}`)
    },
    verify: async () => {
      await send("GET", "/")
      return { account: "toys" }
    },
    consistencySeconds: 0,
  }
}
