import { systemClock } from "../src/core/apis/clock.ts"
import { WorkloadVerifier } from "../src/core/identity/oidc.ts"
import type { Issuer } from "./oidc.ts"

/** Audience of the tokens of workloads for a Berth of these tests. */
export const WORKLOAD_AUDIENCE = "https://berth.example.com"

/** Claims of a workflow's token, as GitHub has them: https://docs.github.com/actions/reference/security/oidc */
export const GITHUB_CLAIMS = {
  aud: WORKLOAD_AUDIENCE,
  sub: "repo:acme/train:environment:production",
  repository: "acme/train",
  repository_id: "74",
  repository_owner: "acme",
  ref: "refs/heads/main",
  environment: "production",
  event_name: "push",
  run_id: "1001",
  email: null,
}

/** Returns a verifier of the issuer's tokens for this audience. */
export function workloadVerifier({ url: issuer }: Issuer): WorkloadVerifier {
  return new WorkloadVerifier({ issuers: [{ issuer, audience: WORKLOAD_AUDIENCE }], clock: systemClock })
}
