import { LAUNCH } from "../../src/apis/launch.ts"
import { type Corpus, items } from "./corpus.ts"

const TIME = "2026-01-31T12:00:00Z"
const UID = "123e4567-e89b-12d3-a456-426614174000"

const OFFER = {
  cloud: "gcp",
  region: "europe-west4",
  instanceType: "n2-standard-2",
  architecture: "amd64",
  provisioning: "onDemand",
  cpu: 2,
  memoryGib: 8,
  hourlyPriceUsd: 0.0971,
  minimumBilledSeconds: 60,
}

const AGENT = {
  signingKey: "{}",
  encryptionKey: "{}",
  registrationTime: TIME,
  sequence: 0,
  retryCount: 0,
}

export const LAUNCHES: Corpus = {
  kind: LAUNCH,
  base: {
    job: { namespace: "team-a", name: "train", uid: UID },
    number: 1,
    installation: "3f0c",
    offer: OFFER,
    run: { image: "alpine" },
    gatewayUrl: "https://gateway.example.com",
    bootDeadlineSeconds: 600,
    lifetimeSeconds: 86_400,
  },
  good: {
    "only required fields": {},
    everything: {
      project: "acme-x1",
      connection: "my-gcp",
      account: "my-project",
      sealedCredentials: "AAAA",
      labels: { team: "vision", "any key": "any value" },
      imageId: "projects/cos-cloud/global/images/cos-stable",
      network: { network: "jobs", subnets: ["jobs-eu"], publicAddress: false },
      disk: { sizeGib: 100, requiredGib: 200, type: "pd-ssd" },
      budgetSeconds: 3600,
      hourlyPrices: { machineUsd: 0.0971, diskUsd: 0.006, addressUsd: 0.005 },
      agentImage: "registry.example/berth:1",
      run: { image: "alpine", command: ["x"], env: { A: "1" }, maxRetries: 1, timeoutSeconds: 60 },
      gatewayCa: "-----BEGIN CERTIFICATE-----\n",
      ended: true,
    },
    "a secret variable of a job of a former version": {
      run: { image: "alpine", secretEnv: { A: { secret: "../../beta/secrets/envs", key: "a/b" } } },
    },
    "an offer with GPUs": { offer: { ...OFFER, gpu: { model: "L4", count: 1, vramGib: 24 } } },
    "a free offer": { offer: { ...OFFER, hourlyPriceUsd: 0 } },
    "null for optional fields": { connection: null, imageId: null, ended: null },
  },
  bad: {
    "no job": { job: undefined },
    "a job without uid": { job: { namespace: "a", name: "b" } },
    "an unknown field of the job": { job: { namespace: "a", name: "b", uid: UID, kind: "Job" } },
    "number 0": { number: 0 },
    "number 1.5": { number: 1.5 },
    "number as a string": { number: "1" },
    "number null": { number: null },
    "no offer": { offer: undefined },
    "an empty offer": { offer: {} },
    "an unknown provisioning": { offer: { ...OFFER, provisioning: "spotFirst" } },
    "a price as a string": { offer: { ...OFFER, hourlyPriceUsd: "0.1" } },
    "GPUs without memory": { offer: { ...OFFER, gpu: { model: "L4", count: 1 } } },
    "a run without image": { run: {} },
    "a run with a field of the job's placement": { run: { image: "alpine", cloud: ["aws"] } },
    "a run with an invalid env name": { run: { image: "alpine", env: { "A=B": "1" } } },
    "a gateway that is too long": { gatewayUrl: "h".repeat(2049) },
    "a boot deadline of 0": { bootDeadlineSeconds: 0 },
    "no lifetime": { lifetimeSeconds: undefined },
    "sealed credentials that are too long": { sealedCredentials: "A".repeat(65_537) },
    "an unknown field": { cloud: "gcp" },
  },
  goodMetadata: { "a uid and a number": { name: `${UID}-1` } },
  status: {
    base: {},
    good: {
      nothing: {},
      everything: {
        observedGeneration: 1,
        phase: "terminated",
        message: "",
        conditions: [],
        vm: { state: "terminated", id: "1", ipAddress: "::1", createTime: TIME, terminationTime: TIME },
        costUsd: 0.5,
        agent: { ...AGENT, finish: { reason: "ContainerFailed", exitCode: 1, message: "", time: TIME } },
      },
      refused: { phase: "refused", refusal: { class: "Capacity", code: "X", message: "none", time: TIME } },
      "a cloud that does not answer": { unanswered: { class: "Unavailable", message: "throttled", since: TIME } },
      lost: { loss: { reason: "Preempted", message: "", time: TIME } },
      "only an agent": { agent: AGENT },
      "an exit code below zero": { agent: { ...AGENT, lastExitCode: -9 } },
    },
    bad: {
      "an unknown phase": { phase: "queued" },
      "an agent without keys": { agent: { sequence: 1 } },
      "a sequence below zero": { agent: { ...AGENT, sequence: -1 } },
      "an unknown finish": { agent: { ...AGENT, finish: { reason: "Failed", time: TIME } } },
      "a refusal without class": { refusal: { message: "", time: TIME } },
      "an unknown class of a missing answer": { unanswered: { class: "Capacity", message: "", since: TIME } },
      "a missing answer without its start": { unanswered: { class: "Unavailable", message: "" } },
      "a cost below zero": { costUsd: -1 },
      "too many conditions": { conditions: items(17, {}) },
      "an unknown field": { heartbeat: TIME },
    },
  },
}
