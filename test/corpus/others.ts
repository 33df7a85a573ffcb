import { API_KEY } from "../../src/core/apis/apikey.ts"
import { CONNECTION } from "../../src/core/apis/connection.ts"
import { CRON_JOB } from "../../src/core/apis/cronjob.ts"
import { LIMITS } from "../../src/core/apis/field-limits.ts"
import { JOB_ARRAY } from "../../src/core/apis/jobarray.ts"
import { ORGANIZATION } from "../../src/core/apis/organization.ts"
import { PROJECT } from "../../src/core/apis/project.ts"
import { STATEMENT } from "../../src/core/apis/statement.ts"
import { WEBHOOK } from "../../src/core/apis/webhook.ts"
import { type Corpus, entries, items } from "./corpus.ts"

const TIME = "2026-01-31T12:00:00Z"
const UUID = "123e4567-e89b-12d3-a456-426614174000"

export const CRON_JOBS: Corpus = {
  kind: CRON_JOB,
  base: { schedule: "0 3 * * *", jobDefinition: { image: "alpine" } },
  good: {
    "only required fields": {},
    everything: {
      jobDefinition: { image: "alpine", resources: { cpu: "2", gpu: { vram: "24Gi" } }, timeoutSeconds: 1 },
      active: false,
      startingDeadlineSeconds: 0,
      concurrencyPolicy: "Replace",
      successfulJobsHistoryLimit: 0,
      failedJobsHistoryLimit: 10_000,
    },
    "a schedule in odd writing": { schedule: " 5/07,0-10/5 01,23\t*/90 jan-Mar,dec sun,7-7 \n" },
    "an alias": { schedule: "@midnight" },
    "the longest schedule": { schedule: `0 0 * * 1${",1".repeat(123)} `.padEnd(256) },
    "a range that runs backwards (the controller and the façade say so)": { schedule: "0 17-9 * * *" },
    "a date that never occurs (the controller and the façade say so)": { schedule: "0 0 30 2 *" },
    "the longest starting deadline": { startingDeadlineSeconds: Number.MAX_SAFE_INTEGER },
    "null for fields with a default": { active: null, concurrencyPolicy: null },
  },
  bad: {
    "no schedule": { schedule: undefined },
    "an empty schedule": { schedule: "" },
    "a schedule that is none": { schedule: "whenever" },
    "a minute that no hour has": { schedule: "99 0 * * *" },
    "a schedule of six fields": { schedule: "0 0 0 * * *" },
    "a schedule of four fields": { schedule: "0 0 * *" },
    "the last day of a month": { schedule: "0 0 L * *" },
    "no day": { schedule: "0 0 ? * MON" },
    "a step of 0": { schedule: "*/0 * * * *" },
    "an unknown alias": { schedule: "@reboot" },
    "a schedule with a time zone": { schedule: "TZ=UTC 0 3 * * *" },
    "a schedule of two lines": { schedule: "0 3 * * *\n0 4 * * *" },
    "a schedule of a space": { schedule: " " },
    "a schedule that is too long": { schedule: "*".repeat(257) },
    "a job definition without image": { jobDefinition: {} },
    "a job definition with a name": { jobDefinition: { image: "alpine", name: "x" } },
    "a cancelled job definition": { jobDefinition: { image: "alpine", cancelled: true } },
    "a job definition that waits": { jobDefinition: { image: "alpine", after: [{ job: "prepare" }] } },
    "an invalid env name in the job definition": { jobDefinition: { image: "alpine", env: { "": "1" } } },
    "a gpu count without model in the job definition": {
      jobDefinition: { image: "alpine", resources: { gpu: { count: 1 } } },
    },
    "active as a string": { active: "yes" },
    "an unknown policy": { concurrencyPolicy: "Skip" },
    "a starting deadline below zero": { startingDeadlineSeconds: -1 },
    "a starting deadline that JavaScript can't hold": { startingDeadlineSeconds: 2 ** 53 },
    "a starting deadline beyond 64 bits": { startingDeadlineSeconds: 1e19 },
    "a history limit that is too high": { successfulJobsHistoryLimit: 10_001 },
    "an unknown field": { suspend: true },
  },
  goodMetadata: {
    "the longest name": { name: "a".repeat(LIMITS.cronJobName) },
    "an encoded name": { name: "abc-x.x0" },
  },
  refusedMetadata: {
    "a name that is too long": { name: "a".repeat(LIMITS.cronJobName + 1) },
    "a name with a dot": { name: "a.b" },
    "a name in the form of a UUID": { name: UUID },
  },
  status: {
    base: {},
    good: { nothing: {}, everything: { observedGeneration: 3, lastTriggeredTime: TIME, nextTriggerTime: TIME } },
    bad: { "an unknown field": { active: [] }, "no time": { nextTriggerTime: "soon" } },
  },
}

const COUNTS = { pending: 1, queued: 0, booting: 0, running: 2, succeeded: 3, failed: 0, cancelled: 0 }

export const JOB_ARRAYS: Corpus = {
  kind: JOB_ARRAY,
  base: { jobDefinition: { image: "alpine" }, size: 3 },
  good: {
    "only required fields": {},
    everything: {
      jobDefinition: { image: "alpine", resources: { cpu: "2" }, timeoutSeconds: 1 },
      size: undefined,
      matrix: { lr: ["0.1", "0.01"], SEED: ["1", "2", ""] },
      parallelism: 20,
      maxFailed: 0,
      successfulJobsHistoryLimit: 0,
      failedJobsHistoryLimit: 10_000,
      ttlSecondsAfterFinished: 60,
      retry: { number: 1, indexes: "0-2,5" },
      after: [{ job: "prepare", outcome: "failed" }, { array: "warm-up" }],
      cancelled: false,
    },
    "the largest size": { size: 10_000 },
    "a matrix of more combinations than an array has (the controller and the façade say so)": {
      size: undefined,
      matrix: { A: items(200, "a"), B: items(200, "b") },
    },
    "a variable with 10,000 values": { size: undefined, matrix: { A: items(10_000, "1") } },
  },
  bad: {
    "no definition": { jobDefinition: undefined },
    "a definition without image": { jobDefinition: {} },
    "a cancelled definition": { jobDefinition: { image: "alpine", cancelled: true } },
    "a definition that waits": { jobDefinition: { image: "alpine", after: [{ job: "prepare" }] } },
    "a prerequisite twice": { after: [{ job: "prepare" }, { job: "prepare" }] },
    "a prerequisite that is a job and an array": { after: [{ job: "prepare", array: "prepare" }] },
    "no jobs": { size: 0 },
    "too many jobs": { size: 10_001 },
    "no parallelism": { parallelism: 0 },
    "a number as a value": { size: undefined, matrix: { A: [1] } },
    "a variable without values": { size: undefined, matrix: { A: [] } },
    "a value that is too long": { size: undefined, matrix: { A: ["x".repeat(257)] } },
    "a value with NUL": { size: undefined, matrix: { A: ["a\0b"] } },
    "a name with a dash": { size: undefined, matrix: { "a-b": ["1"] } },
    "too many variables": { size: undefined, matrix: entries(9, ["1"]) },
    "a matrix that is too large": { size: undefined, matrix: { A: items(257, "x".repeat(256)) } },
    "a retry of no indexes": { retry: { number: 1, indexes: "" } },
    "a retry of no numbers": { retry: { number: 1, indexes: "all" } },
    "a retry number of 0": { retry: { number: 0, indexes: "0" } },
    "an unknown field": { completions: 3 },
  },
  refusedByRule: {
    "size and matrix": { matrix: { A: ["1"] } },
    "neither size nor matrix": { size: undefined },
  },
  goodMetadata: { "the longest name": { name: "a".repeat(LIMITS.jobArrayName) } },
  refusedMetadata: {
    "a name that is too long": { name: "a".repeat(LIMITS.jobArrayName + 1) },
    "a name with a dot": { name: "a.b" },
    "a name in the form of a UUID": { name: UUID },
  },
  status: {
    base: {},
    good: {
      nothing: {},
      everything: {
        observedGeneration: 3,
        phase: "running",
        size: 6,
        counts: COUNTS,
        activeIndexes: "3-4",
        succeededIndexes: "0-2",
        failedIndexes: "",
        cancelledIndexes: "",
        attempts: [{ attempt: 2, indexes: "3" }],
        after: [
          { job: "prepare", uid: UUID, outcome: "succeeded" },
          { array: "sweep", uid: UUID },
        ],
        retried: 1,
        costUsd: 0.25,
        startTime: TIME,
        completionTime: TIME,
      },
    },
    bad: {
      "a phase of jobs": { phase: "booting" },
      "no indexes": { activeIndexes: "all" },
      "no number": { costUsd: "1" },
    },
  },
}

export const CONNECTIONS: Corpus = {
  kind: CONNECTION,
  base: { type: "aws", credentialsSecretRef: { name: "aws-credentials" } },
  good: {
    "credentials in a Secret": {},
    sealed: { type: "gcp", credentialsSecretRef: undefined, sealedCredentials: "AAAA" },
    "the longest sealed credentials": { credentialsSecretRef: undefined, sealedCredentials: "A".repeat(65_536) },
    "settings of VMs on AWS": {
      network: "vpc-0a1b2c3d",
      subnets: { "eu-central-1": ["subnet-0a1b2c3d", "subnet-0123456789abcdef0"], "us-east-1": ["subnet-0f4e0f4e"] },
      publicAddress: false,
      disk: { size: "16Ti", type: "gp3" },
    },
    "settings of VMs on Google Cloud": {
      type: "gcp",
      network: "jobs",
      subnets: { "europe-west1": ["jobs-eu"] },
      publicAddress: false,
      disk: { size: "64Ti", type: "pd-ssd" },
    },
    "settings of VMs on Azure": {
      type: "azure",
      network: "net-rg/jobs",
      subnets: {
        westeurope: [
          "a",
          `/subscriptions/${UUID}/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/v/subnets/b`,
        ],
      },
      publicAddress: false,
      disk: { size: "4095Gi", type: "Premium_LRS" },
    },
    "a network of Google Cloud without subnets": { type: "gcp", network: "jobs" },
    "subnets of Azure with their networks": { type: "azure", subnets: { westeurope: ["rg/vnet/a"] } },
    "the smallest disk": { disk: { size: "10Gi" } },
    "as many subnets as allowed": {
      subnets: Object.fromEntries(
        Array.from({ length: LIMITS.subnetRegions }, (_, n) => [
          `region-${n}`,
          Array.from({ length: LIMITS.subnets }, (__, m) => `subnet-${String(m).padStart(17, "0")}`),
        ]),
      ),
    },
    "null for the settings": { network: null, subnets: null, publicAddress: null, disk: null },
  },
  bad: {
    "no type": { type: undefined },
    "an unknown type": { type: "oracle" },
    "a type in another case": { type: "AWS" },
    "credentials in clear": { access_key_id: "AKIA" },
    "a secret without name": { credentialsSecretRef: {} },
    "a secret with an empty name": { credentialsSecretRef: { name: "" } },
    "a secret's name with a slash": { credentialsSecretRef: { name: "../../beta/secrets/envs" } },
    "a secret's name with a capital": { credentialsSecretRef: { name: "Aws" } },
    "a secret of another namespace": { credentialsSecretRef: { name: "a", namespace: "b" } },
    "sealed credentials that are too long": { sealedCredentials: "A".repeat(65_537) },
    "an empty network": { type: "gcp", network: "" },
    "a region without subnets": { subnets: { "eu-central-1": [] } },
    "too many subnets in a region": {
      subnets: { "eu-central-1": Array.from({ length: LIMITS.subnets + 1 }, () => "subnet-0a1b2c3d") },
    },
    "a region in capitals": { subnets: { "EU-Central-1": ["subnet-0a1b2c3d"] } },
    "a public address as a string": { publicAddress: "no" },
    "a disk that is too small": { disk: { size: "9Gi" } },
    "a disk that is too large": { type: "gcp", disk: { size: "65537Gi" } },
    "a disk without a unit": { disk: { size: "200" } },
    "a disk in another unit": { disk: { size: "200G" } },
    "a disk of half a GiB": { disk: { size: "10.5Gi" } },
    "an unknown field of the disk": { disk: { sizeGb: 200 } },
  },
  refusedByRule: {
    "no credentials": { credentialsSecretRef: undefined },
    "two sources of credentials": { sealedCredentials: "AAAA" },
    "settings of VMs for a type without VMs": { type: "dockerhub", publicAddress: false },
    "a network's name on AWS": { network: "jobs", subnets: { "eu-central-1": ["subnet-0a1b2c3d"] } },
    "a network on AWS without subnets": { network: "vpc-0a1b2c3d" },
    "a subnet of another cloud": { subnets: { "eu-central-1": ["jobs-eu"] } },
    "subnets of Google Cloud without a network": { type: "gcp", subnets: { "europe-west1": ["jobs-eu"] } },
    "a path as a network of Google Cloud": { type: "gcp", network: "../other" },
    "a resource group of dots": { type: "azure", network: "../jobs", subnets: { westeurope: ["a"] } },
    "a subnet's name on Azure without a network": { type: "azure", subnets: { westeurope: ["a"] } },
    "no public address in Berth's own network on Azure": { type: "azure", publicAddress: false },
    "a disk type of another cloud": { disk: { type: "pd-ssd" } },
    "a disk that is too large for Azure": { type: "azure", disk: { size: "4Ti" } },
    "a disk that is too large for AWS": { disk: { size: "16385Gi" } },
  },
  goodMetadata: { "an encoded name": { name: "my-aws.ud" }, "the longest name": { name: "a".repeat(63) } },
  refusedMetadata: {
    "a name that is too long": { name: "a".repeat(64) },
    "a name in the form of a UUID": { name: UUID },
  },
  status: {
    base: {},
    good: {
      nothing: {},
      everything: { observedGeneration: 1, account: "123456789012", lastVerifiedTime: TIME, regions: ["eu-west-1"] },
    },
    bad: { "an account that is a number": { account: 123456789012 } },
  },
}

const HASH = "0123456789abcdef".repeat(4)

export const API_KEYS: Corpus = {
  kind: API_KEY,
  base: { role: "viewer", keyId: "abcdefgh", tokenHash: HASH },
  good: {
    "only required fields": {},
    everything: {
      role: "admin",
      keyId: "a".repeat(40),
      expiresAt: "2030-01-01T00:00:00.5+01:00",
      oidc: { issuer: "https://ci.example.com", claims: { repository: "acme/train", ref: "refs/heads/main" } },
    },
    "no expiry": { expiresAt: null },
  },
  bad: {
    "no role": { role: undefined },
    "an unknown role": { role: "owner" },
    "a key id that is too short": { keyId: "abcdefg" },
    "a key id that is too long": { keyId: "a".repeat(41) },
    "a key id with capitals": { keyId: "ABCDEFGH" },
    "a hash in capitals": { tokenHash: HASH.toUpperCase() },
    "a hash that is too short": { tokenHash: HASH.slice(1) },
    "a hash with a newline": { tokenHash: `${HASH}\n` },
    "a value in clear": { value: "berth_x_y" },
    "an expiry that is a date": { expiresAt: "2030-01-01" },
    "tokens without an issuer": { oidc: { claims: { sub: "a" } } },
    "tokens without claims": { oidc: { issuer: "https://ci.example.com", claims: {} } },
    "a claim with a pattern": { oidc: { issuer: "https://ci.example.com", claims: { sub: "repo:acme/*" } } },
    "a claim that is empty": { oidc: { issuer: "https://ci.example.com", claims: { sub: "" } } },
    "a claim's name with a space": { oidc: { issuer: "https://ci.example.com", claims: { sub: "a", "a b": "c" } } },
    "a display name: metadata.name is the only name": { displayName: "My_Key" },
  },
  goodMetadata: { "an encoded name": { name: "my-key.ud" } },
  refusedMetadata: {
    "a name that is too long": { name: "a".repeat(64) },
    "a name in the form of a UUID": { name: UUID },
  },
}

export const ORGANIZATIONS: Corpus = {
  kind: ORGANIZATION,
  base: { displayName: "Acme" },
  good: {
    "only required fields": {},
    "a name in another script, with spaces": { displayName: " Ünïted 株式会社 & Co. 🚢 " },
    everything: {
      displayName: "Ä".repeat(64),
      category: "",
      members: [
        { userId: "https://issuer#1", email: "a@example.com", role: "owner" },
        { userId: "https://issuer#2", role: "member" },
      ],
      groups: [{ group: "https://issuer#engineers", role: "member" }],
    },
    caps: { caps: { maxVms: 10, maxHourlyUsd: 12.5, maxMonthlyUsd: 1000, onExceeded: "wait", reserve: "expected" } },
    "no members": { members: [] },
    "a null category": { category: null },
  },
  bad: {
    "no name": { displayName: undefined },
    "a name of a space": { displayName: " " },
    "a name with NUL": { displayName: "a\u0000" },
    "a name of two lines": { displayName: "a\nb" },
    "an empty name": { displayName: "" },
    "a name that is too long": { displayName: "x".repeat(65) },
    "a category that is too long": { category: "x".repeat(33) },
    "an unknown action at a cap": { caps: { onExceeded: "pause" } },
    "a member without role": { members: [{ userId: "https://issuer#1" }] },
    "a member twice": {
      members: [
        { userId: "https://issuer#1", role: "owner" },
        { userId: "https://issuer#1", role: "member" },
      ],
    },
    "a project's role": { members: [{ userId: "https://issuer#1", role: "viewer" }] },
    "members as a map": { members: { "1": "owner" } },
    "a null member": { members: [null] },
    "a person without an issuer": { members: [{ userId: "system:admin", role: "owner" }] },
    "an issuer without a person": { members: [{ userId: "https://issuer#", role: "owner" }] },
    "a group of Kubernetes itself": { groups: [{ group: "system:authenticated", role: "member" }] },
    "a group twice": {
      groups: [
        { group: "https://issuer#engineers", role: "owner" },
        { group: "https://issuer#engineers", role: "member" },
      ],
    },
    "a group without role": { groups: [{ group: "https://issuer#engineers" }] },
  },
}

export const PROJECTS: Corpus = {
  kind: PROJECT,
  base: { displayName: "Research", organization: "acme-x1" },
  good: {
    "only required fields": {},
    everything: {
      namespace: "research",
      caps: { maxVms: 10, maxHourlyUsd: 12.5, maxMonthlyUsd: 1000, onExceeded: "cancel", reserve: "strict" },
      members: [{ userId: "https://issuer#1", role: "developer" }],
      groups: [{ group: "https://issuer#/research/night shift", role: "viewer" }],
    },
    "caps of 0": { caps: { maxVms: 0, maxHourlyUsd: 0 } },
    "caps of the version before": { caps: { maxVms: 10, maxHourlyUsd: 12.5, maxMonthlyUsd: 1e12 } },
  },
  bad: {
    "no organization": { organization: undefined },
    "an empty organization": { organization: "" },
    "half a VM": { caps: { maxVms: 0.5 } },
    "a cap below zero": { caps: { maxMonthlyUsd: -1 } },
    "half a GPU": { caps: { maxGpus: 0.5 } },
    "half an idle VM": { caps: { maxIdleVms: 0.5 } },
    "an unknown cap": { caps: { maxDisks: 1 } },
    "an unknown action at a cap": { caps: { onExceeded: "stop" } },
    "an unknown reservation": { caps: { reserve: "all" } },
    "an organization's role": { members: [{ userId: "https://issuer#1", role: "owner" }] },
    "an organization's role of a group": { groups: [{ group: "https://issuer#engineers", role: "member" }] },
    "a group of Kubernetes itself": { groups: [{ group: "system:masters", role: "admin" }] },
    "a member twice": {
      members: [
        { userId: "https://issuer#1", role: "viewer" },
        { userId: "https://issuer#1", role: "viewer" },
      ],
    },
  },
  goodMetadata: { "the longest name": { name: "a".repeat(40) } },
  refusedMetadata: { "a name that is too long": { name: "a".repeat(41) }, "a name with a dot": { name: "a.b" } },
}

export const STATEMENTS: Corpus = {
  kind: STATEMENT,
  base: { namespace: "research", month: "2026-11" },
  good: { "only required fields": {}, "an organization": { organization: "acme-x1" } },
  bad: {
    "no namespace": { namespace: undefined },
    "no month": { month: undefined },
    "a month of no year": { month: "11" },
    "a thirteenth month": { month: "2026-13" },
  },
  status: {
    base: { spentUsd: 3, counted: [] },
    good: {
      everything: {
        byCloud: { aws: 2, gcp: 1 },
        byProvisioning: { spot: 3 },
        byLabel: [{ key: "team", value: "vision", usd: 3 }],
        otherLabelsUsd: 1,
        byCronJob: [{ uid: "123e4567-e89b-12d3-a456-426614174000", usd: 2 }],
        otherCronJobsUsd: 1,
        daily: [
          { day: 31, cloud: "aws", provisioning: "spot", vmSeconds: 60, machineUsd: 1, diskUsd: 1, addressUsd: 1 },
        ],
        marginUsd: 0.5,
        counted: ["123e4567-e89b-12d3-a456-426614174000-1"],
      },
    },
    bad: {
      "a cost below zero": { spentUsd: -1 },
      "a name that is no text": { counted: [1] },
      "a day after the month's end": {
        daily: [{ day: 32, cloud: "aws", provisioning: "spot", machineUsd: 1, diskUsd: 1, addressUsd: 1 }],
      },
    },
  },
}

export const WEBHOOKS: Corpus = {
  kind: WEBHOOK,
  base: { url: "https://ci.example.com/berth", events: ["job.*"], secretRef: { name: "ci" } },
  good: {
    "only required fields": {},
    "an address in the secret": { url: undefined, format: "slack" },
    sealed: { secretRef: undefined, sealedSecret: "AAAA" },
    everything: {
      events: ["job.failed", "cronjob.skipped", "connection.failed", "budget.threshold"],
      labels: { team: "ml" },
      tags: ["nightly"],
      format: "cloudevents",
      include: ["env", "command", "args"],
      active: false,
      resumedTime: TIME,
    },
    "an address with port and query": { url: "http://10.0.0.1:8080?token=1" },
    "the longest address": { url: `https://a/${"b".repeat(LIMITS.receiver - 10)}` },
  },
  bad: {
    "no events": { events: undefined },
    "an empty list of events": { events: [] },
    "an unknown event": { events: ["job.started"] },
    "an address without a scheme": { url: "ci.example.com" },
    "another scheme": { url: "ftp://ci.example.com" },
    "a file": { url: "file:///etc/passwd" },
    "an address with a password": { url: "https://user:password@ci.example.com" },
    "an address with a space": { url: "https://ci.example.com/a b" },
    "an address that is too long": { url: `https://a/${"b".repeat(LIMITS.receiver)}` },
    "an unknown format": { format: "teams" },
    "an unknown field to include": { include: ["secretEnv"] },
    "a secret in clear": { secret: "whsec_AAAA" },
    "a secret of another namespace": { secretRef: { name: "a", namespace: "b" } },
  },
  refusedByRule: {
    "no secret": { secretRef: undefined },
    "two secrets": { sealedSecret: "AAAA" },
  },
  goodMetadata: { "the longest name": { name: "a".repeat(LIMITS.webhookName) } },
  refusedMetadata: {
    "a name that is too long": { name: "a".repeat(LIMITS.webhookName + 1) },
    "a name in the form of a UUID": { name: UUID },
  },
  status: {
    base: {},
    good: {
      nothing: {},
      everything: {
        observedGeneration: 3,
        cursor: TIME,
        pending: [{ id: UUID, type: "job.failed", subject: "jobs/a", time: TIME, attempts: 1, jobUid: UUID }],
        deliveries: [
          {
            ...{ id: UUID, type: "job.failed", subject: "jobs/a", time: TIME, attempts: 1 },
            result: "missed",
            endTime: TIME,
          },
        ],
        missedCount: 1,
      },
    },
    bad: { "an unknown field": { secret: "whsec_" }, "no time": { cursor: "soon" } },
  },
}
