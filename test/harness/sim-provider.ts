import type { Capabilities, CapabilityQuestion } from "../../src/clouds/account.ts"
import type { Cloud } from "../../src/clouds/cloud.ts"
import type { Provider } from "../../src/clouds/provider.ts"
import type { Clock } from "../../src/core/apis/clock.ts"
import type { CredentialFields } from "../../src/core/apis/credentials.ts"
import { CredentialsError } from "../../src/core/outbound/errors.ts"
import { SimCloud } from "./sim-cloud.ts"

interface SimAccount {
  id: string
  cloud: SimCloud
}

/** An in-memory provider with several accounts for connections of type aws. Its key pairs can be revoked. */
export class SimProvider {
  /** Accounts by the secret of a key pair. */
  readonly #accounts = new Map<string, SimAccount>()
  readonly #clock: Clock
  /** Secrets that `verify` received, in order. */
  readonly verified: string[] = []
  /** Replacement of `verify`; undefined: the normal check. */
  onVerify: ((fields: CredentialFields) => Promise<{ account: string }>) | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Creates a key of an account, and the account with its first key. */
  issue(account: string, secret: string): SimCloud {
    const known = [...this.#accounts.values()].find(({ id }) => id === account)
    const { cloud } = known ?? { cloud: new SimCloud(this.#clock) }
    this.#accounts.set(secret, { id: account, cloud })
    return cloud
  }

  revoke(secret: string): void {
    this.#accounts.delete(secret)
  }

  /** Names of the launches that were completed. */
  readonly completed: string[] = []
  /** Verdicts on every account. Absent: the provider has no such check. */
  onCapabilities: ((question: CapabilityQuestion, fields: CredentialFields) => Promise<Capabilities>) | undefined

  readonly provider: Provider = {
    account: (fields) => ({
      ...(this.onCapabilities && {
        capabilities: (question) => this.onCapabilities?.(question, fields) ?? Promise.resolve({}),
      }),
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
        completeLaunch: async ({ name }) => {
          await open()
          this.completed.push(name)
        },
        consoleOf: async (vm) => (await open()).consoleOf?.(vm),
        list: async (scope) => (await open()).list(scope),
        terminate: async (vm) => (await open()).terminate(vm),
        verify: async () => ({ account: this.#find(fields).id }),
      }
    },
  }

  /** Real providers repeat their input too. */
  #find(fields: CredentialFields): SimAccount {
    const found = this.#accounts.get(secretOf(fields))
    if (found !== undefined) return found
    throw new CredentialsError("InvalidClientTokenId", `the key ${secretOf(fields)} is not known`)
  }
}

function secretOf(fields: CredentialFields): string {
  return fields["secret_access_key"] ?? ""
}
