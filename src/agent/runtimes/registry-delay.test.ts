import { expect, it } from "vitest"
import { isBusy, manifestUrl } from "./registry-delay.ts"

const DIGEST = `sha256:${"0".repeat(64)}`

it.each([
  ["busybox:1.36", "https://registry-1.docker.io/v2/library/busybox/manifests/1.36"],
  ["team/app:1", "https://registry-1.docker.io/v2/team/app/manifests/1"],
  ["docker.io/team/app:1", "https://registry-1.docker.io/v2/team/app/manifests/1"],
  ["docker.io/busybox:1", "https://registry-1.docker.io/v2/library/busybox/manifests/1"],
  ["ghcr.io/team/deep/app:v2", "https://ghcr.io/v2/team/deep/app/manifests/v2"],
  [`ghcr.io/team/app@${DIGEST}`, `https://ghcr.io/v2/team/app/manifests/${DIGEST}`],
  [`ghcr.io/team/app:v2@${DIGEST}`, `https://ghcr.io/v2/team/app/manifests/${DIGEST}`],
  ["registry.example:5000/app:1", "https://registry.example:5000/v2/app/manifests/1"],
  ["localhost/app:1", "http://localhost/v2/app/manifests/1"],
  ["127.0.0.1:5000/app:1", "http://127.0.0.1:5000/v2/app/manifests/1"],
])("the manifest of %s is at %s", (image, url) => {
  expect(manifestUrl(image).href).toBe(url)
})

it.each([
  ["toomanyrequests: You have reached your pull rate limit", true],
  ["error parsing HTTP 429 response body: invalid character", true],
  ["received unexpected HTTP status: 503 Service Unavailable", true],
  ["received unexpected HTTP status: 500 Internal Server Error", false],
  ["dial tcp 127.0.0.1:1: connect: connection refused", false],
])("a pull asks for the registry's delay after %j: %j", (message, asks) => {
  expect(isBusy(message)).toBe(asks)
})
