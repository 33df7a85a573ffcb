import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, expect, it } from "vitest"
import { systemClock } from "../../src/apis/clock.ts"
import { startIssuer } from "../../src/embedded/issuer.ts"
import { userIdIn } from "../../src/identity/login.ts"
import { TokenVerifier } from "../../src/identity/oidc.ts"
import { signIn } from "../sign-in.ts"

const dataDir = await mkdtemp(join(tmpdir(), "berth-issuer-"))
afterAll(() => rm(dataDir, { recursive: true }))

it("signs a person in, and its tokens stay good when it is started anew", async () => {
  const first = await startIssuer({ port: 0, dataDir })
  const token = await signIn(first.issuer, "ada")
  const verifier = new TokenVerifier({ issuers: [first], clock: systemClock })
  expect(userIdIn(token)).toBe(`${first.issuer}#ada`)
  expect(userIdIn("a-token-that-only-its-issuer-reads")).toBeUndefined()
  const ada = { userId: `${first.issuer}#ada`, email: "ada@localhost" }
  expect(await verifier.verify(token)).toEqual(ada)
  await first.close()
  const again = await startIssuer({ port: Number(new URL(first.issuer).port), dataDir })
  expect(await new TokenVerifier({ issuers: [again], clock: systemClock }).verify(token)).toEqual(ada)
  await again.close()
})
