import { randomBytes } from "node:crypto"
import { GPUS_LABEL } from "../../src/agent/runtimes/gpu-helper.ts"
import { NVIDIA_SMI } from "../../src/agent/usage/nvidia-smi.ts"
import type { Launch, StoredLaunch } from "../../src/core/apis/launch.ts"
import { until } from "../harness/eventually.ts"
import { buildImage, containersOf, docker } from "./images.ts"

/** Offer with two GPUs. The machine of these tests has none. */
export const TWO_GPUS: Launch["spec"]["offer"] = {
  ...{ cloud: "azure", region: "here", instanceType: "gpus", architecture: "amd64", provisioning: "onDemand" },
  ...{ cpu: 4, memoryGib: 16, hourlyPriceUsd: 1, minimumBilledSeconds: 60 },
  gpu: { model: "T4", count: 2, vramGib: 16 },
}

/** Builds an image whose `nvidia-smi` shows two cards, ten times a second. Returns its name. */
export async function buildGpuImage(base: string): Promise<string> {
  const name = `berth-test/gpus:${randomBytes(4).toString("hex")}`
  const [, ...words] = NVIDIA_SMI
  const script = [
    "#!/bin/sh",
    `[ "$*" = "${words.join(" ")}" ] || exit 2`,
    'while true; do echo "0, 40, 1000"; echo "1, 80, 2000"; sleep 0.1; done',
  ]
  const dockerfile = [`FROM ${base}`, "COPY nvidia-smi /bin/nvidia-smi"]
  await buildImage(name, { Dockerfile: `${dockerfile.join("\n")}\n`, "nvidia-smi": `${script.join("\n")}\n` })
  return name
}

/** Returns the helper for GPUs of a Launch, once it runs and is not the one with this id. */
export async function helperOf(launch: StoredLaunch, old = ""): Promise<string> {
  const running = async () =>
    (await containersOf(launch)).find(
      ({ Id, Labels, State }) => GPUS_LABEL in Labels && State === "running" && Id !== old,
    )
  await until("the helper for GPUs runs", async () => (await running()) !== undefined)
  return (await running())?.Id ?? ""
}

/** Rounds of `nvidia-smi` in which an agent takes some samples: two seconds, on a busy machine more. */
const ROUNDS = 20

/** Waits until a helper has shown the cards' use for some time, so that the agent has samples of it. */
export async function useShown(helper: string): Promise<void> {
  const output = await docker.getContainer(helper).attach({ stream: true, stdout: true, stderr: true })
  let rounds = 0
  for await (const piece of output) {
    rounds += String(piece).match(/^1, /gm)?.length ?? 0
    if (rounds >= ROUNDS) return
  }
  throw new Error(`the helper for GPUs has ended after ${rounds} rounds`)
}
