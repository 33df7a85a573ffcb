import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll } from "vitest"
import { CLIENT_ID, type DevelopmentIssuer, startIssuer } from "../../dev/issuer.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { OrganizationRole, StoredOrganization } from "../../src/core/apis/organization.ts"
import { TokenVerifier } from "../../src/core/identity/oidc.ts"
import { ORGANIZATIONS } from "../../src/core/resources.ts"
import type { ReplicaOptions } from "../harness/facade.ts"
import type { ProjectFixture } from "../harness/facade-project.ts"

/** Issuer of a suite, at which people sign in by their name. */
export interface People {
  /** Options of a replica that accepts the issuer's tokens. */
  replicaOptions(): ReplicaOptions
  userId(name: string): string
  /** Creates the organization of the fixture's project with these members. */
  makeOrganization(displayName: string, roles: Record<string, OrganizationRole>): Promise<void>
}

/** Starts the development issuer before a suite, and ends it after it. */
export function people(fixture: ProjectFixture): People {
  let folder: string
  let issuer: DevelopmentIssuer
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-console-people-"))
    issuer = await startIssuer({ port: 0, dataDir: folder })
  })
  afterAll(async () => {
    await issuer?.close()
    await rm(folder, { recursive: true, force: true })
  })
  const userId = (name: string): string => `${issuer.issuer}#${name}`
  return {
    userId,
    replicaOptions: () => ({
      tokens: new TokenVerifier({ issuers: [issuer], clock: systemClock }),
      settings: { signIn: { issuer: issuer.issuer, audience: issuer.audience, clientId: CLIENT_ID } },
    }),
    makeOrganization: async (displayName, roles) => {
      const members = Object.entries(roles).map(([name, role]) => ({ userId: userId(name), role }))
      const metadata = { name: fixture.organization }
      const organization = { apiVersion: "berth.dev/v1alpha1", kind: "Organization", metadata }
      const spec = { displayName, members }
      await fixture.client.create(ORGANIZATIONS, { ...organization, spec } as unknown as StoredOrganization)
    },
  }
}
