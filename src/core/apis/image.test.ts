import { describe, expect, it } from "vitest"
import { parseImage } from "./image.ts"

describe("an image's name", () => {
  const digest = `sha256:${"a".repeat(64)}`
  it.each([
    ["alpine", "docker.io", "library/alpine", "latest"],
    ["alpine:3.20", "docker.io", "library/alpine", "3.20"],
    ["docker.io/alpine", "docker.io", "library/alpine", "latest"],
    ["index.docker.io/acme/app:1", "docker.io", "acme/app", "1"],
    ["acme/app", "docker.io", "acme/app", "latest"],
    ["ghcr.io/acme/team/app:v1", "ghcr.io", "acme/team/app", "v1"],
    ["localhost/app", "localhost", "app", "latest"],
    ["127.0.0.1:5000/app", "127.0.0.1:5000", "app", "latest"],
    ["registry.example:5000/a/b:c", "registry.example:5000", "a/b", "c"],
    [`acme/app@${digest}`, "docker.io", "acme/app", digest],
    [`ghcr.io/acme/app:v1@${digest}`, "ghcr.io", "acme/app", digest],
  ])("%s is kept in %s", (image, registry, repository, reference) => {
    expect(parseImage(image)).toEqual({ registry, repository, reference })
  })
})
