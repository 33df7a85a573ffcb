import { expect, it } from "vitest"
import { kubernetesGoMod, kubernetesLinkerFlags } from "./go-build.mjs"

it("a Go build replaces each staging module by its published version", () => {
  const upstream = {
    Go: "1.25.0",
    Replace: [{ Old: { Path: "k8s.io/api" } }, { Old: { Path: "k8s.io/client-go" } }],
  }
  expect(kubernetesGoMod(upstream, "v1.35.4").split("\n")).toEqual([
    "module controlplane.invalid/kubernetes",
    "go 1.25.0",
    "godebug default=go1.25",
    "require k8s.io/kubernetes v1.35.4",
    "replace k8s.io/api => k8s.io/api v0.35.4",
    "replace k8s.io/client-go => k8s.io/client-go v0.35.4",
    "",
  ])
})

it("a Go build links the version in where each program looks for it", () => {
  expect(kubernetesLinkerFlags("v1.35.4")).toBe(
    "-s -w " +
      "-X k8s.io/client-go/pkg/version.gitVersion=v1.35.4 -X k8s.io/component-base/version.gitVersion=v1.35.4 " +
      "-X k8s.io/client-go/pkg/version.gitMajor=1 -X k8s.io/component-base/version.gitMajor=1 " +
      "-X k8s.io/client-go/pkg/version.gitMinor=35 -X k8s.io/component-base/version.gitMinor=35",
  )
})
