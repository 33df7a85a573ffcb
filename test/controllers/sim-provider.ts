import type { Clock } from "../../src/apis/clock.ts"
import type { CredentialFields } from "../../src/apis/credentials.ts"
import type { Provider } from "../../src/cloud/clouds.ts"
import { CredentialsError } from "../../src/cloud/errors.ts"
import type { Cloud } from "../../src/cloud/provider.ts"
import { SimCloud } from "./sim-cloud.ts"

interface SimAccount {
  id: string
  cloud: SimCloud
}

/** A provider in memory with several accounts, opened by key pairs that may be revoked; for connections of type aws. */
export class SimProvider {
  /** By the secret of a key pair. */
  readonly #accounts = new Map<string, SimAccount>()
  readonly #clock: Clock
  /** Secrets that were shown to `verify`, in order. */
  readonly verified: string[] = []
  /** What `verify` does instead of looking; undefined: it looks. */
  onVerify: ((fields: CredentialFields) => Promise<{ account: string }>) | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Makes a key of an account, which is made with its first one. */
  issue(account: string, secret: string): SimCloud {
    const known = [...this.#accounts.values()].find(({ id }) => id === account)
    const { cloud } = known ?? { cloud: new SimCloud(this.#clock) }
    this.#accounts.set(secret, { id: account, cloud })
    return cloud
  }

  revoke(secret: string): void {
    this.#accounts.delete(secret)
  }

  readonly provider: Provider = {
    account: (fields) => ({
      verify: async () => {
        this.verified.push(secretOf(fields))
        await Promise.resolve()
        return this.onVerify === undefined ? { account: this.#find(fields).id } : await this.onVerify(fields)
      },
    }),
    region: (fields, region): Cloud => {
      const open = (): Promise<Cloud> => this.#find(fields).cloud.open({ cloud: "sim", region })
      return {
        consistencySeconds: 0,
        launch: async (spec) => (await open()).launch(spec),
        list: async (scope) => (await open()).list(scope),
        terminate: async (vm) => (await open()).terminate(vm),
        verify: async () => ({ account: this.#find(fields).id }),
      }
    },
  }

  /** Real ones echo what they were given, too. */
  #find(fields: CredentialFields): SimAccount {
    const found = this.#accounts.get(secretOf(fields))
    if (found !== undefined) return found
    throw new CredentialsError("InvalidClientTokenId", `the key ${secretOf(fields)} is not known`)
  }
}

function secretOf(fields: CredentialFields): string {
  return fields["secret_access_key"] ?? ""
}
